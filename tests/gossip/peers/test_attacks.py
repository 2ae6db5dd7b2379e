"""Nodes that somebody attacks: strangers who hold connections, a neighbour who lies, and one who holds calls."""

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from deploy.environment import free_ports
from deploy.program import wait_until
from fedcomp.core import read_archive
from fedcomp.gossip.peers import gossip_pb2 as pb
from fedcomp.gossip.peers import read_settings, run
from fedcomp.gossip.peers.links import SERVICE
from fedcomp.gossip.peers.loop import training_of
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.sync import start_replica
from tests.gossip.peers.toy import N, Toy, make_keys, tls, write_settings

ROOT = Path(__file__).parents[3]
LONG_S = 120.0
LIMIT = 200
"""Of open files: a node of one neighbour takes 100 connections."""


class Node:
    """A node that runs in a thread, and the records of its rounds."""

    def __init__(self, path: Path, pool: ThreadPoolExecutor) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.started = threading.Event()
        self.done: Future[None] = pool.submit(run, read_settings(path), self._report)

    def _report(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        self.started.set()


@contextmanager
def channel(folder: Path, port: int, node: int, to: int) -> Generator[grpc.Channel]:
    """Connect to node `to` with the certificate of `node`."""
    files = [folder / "keys" / name for name in ("ca.pem", f"node-{node}.key", f"node-{node}.pem")]
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    name = [("grpc.ssl_target_name_override", f"node-{to}.gossip"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, name) as opened:
        yield opened


def training(path: Path) -> int:
    settings, first = read_settings(path), Toy(0, 2, 0).first_model()
    tensors = SharedTensors.of(first)
    start = start_replica(tensors.layout, tensors.layout.unflatten(tensors.vector(first), b""))
    return training_of(settings, tensors, start.fingerprint)


def start_process(path: Path, limit: str = "") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "fedcomp.gossip", str(path)]
    if limit:
        command = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *command]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait(30)
    if process.stderr is not None:
        process.stderr.close()


def lines_of(folder: Path, node: int) -> int:
    path = folder / f"node-{node}" / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.system
def test_connections_without_a_certificate_do_not_use_up_the_handles(tmp_path: Path) -> None:
    """The node takes half of what it may open, closes the rest, and goes on with the neighbour that it has."""
    ports = free_ports(2)
    make_keys(tmp_path, 2)
    paths = [
        write_settings(tmp_path, node, ports, tls(tmp_path, node), rounds=10_000, task="tests.gossip.peers.toy:Slow")
        for node in range(2)
    ]
    with ExitStack() as stack:
        nodes = [start_process(paths[0], f"-n {LIMIT}"), start_process(paths[1])]
        for each in nodes:
            stack.callback(end, each)
        assert wait_until(lambda: lines_of(tmp_path, 0) >= 2, LONG_S)
        for _ in range(2 * LIMIT):
            stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
        seen, most = lines_of(tmp_path, 0), 0
        for further in range(1, 16):
            assert wait_until(lambda further=further: lines_of(tmp_path, 0) >= seen + further, LONG_S)  # type: ignore[misc]
            most = max(most, psutil.Process(nodes[0].pid).num_fds())
        assert LIMIT // 2 < most < LIMIT * 3 // 4
        assert [each.poll() for each in nodes] == [None, None]


@pytest.mark.system
def test_connections_that_never_shake_hands_are_closed(tmp_path: Path) -> None:
    ports = free_ports(2)
    make_keys(tmp_path, 2)
    process = start_process(write_settings(tmp_path, 0, ports, tls(tmp_path, 0), silence=60.0))
    with ExitStack() as stack:
        stack.callback(end, process)
        with channel(tmp_path, ports[0], 1, 0) as neighbor:
            grpc.channel_ready_future(neighbor).result(LONG_S)
        stranger = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0]), timeout=30.0))
        assert stranger.recv(1) == b"", "the node has closed it"


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "limit"), [(resource.RLIMIT_FSIZE, 100), (resource.RLIMIT_NOFILE, 5)], ids=["full disk", "no handles"]
)
def test_a_node_without_room_waits_and_loses_nothing(tmp_path: Path, kind: int, limit: int) -> None:
    ports, rounds = free_ports(2), 12
    paths = [
        write_settings(tmp_path, node, ports, rounds=rounds, task="tests.gossip.peers.toy:Slow", silence=60.0)
        for node in range(2)
    ]
    with ExitStack() as stack:
        nodes = [start_process(path) for path in paths]
        for each in nodes:
            stack.callback(end, each)
        assert wait_until(lambda: lines_of(tmp_path, 0) >= 3, LONG_S)
        hard = resource.prlimit(nodes[0].pid, kind)[1]
        resource.prlimit(nodes[0].pid, kind, (limit, hard))
        assert nodes[0].stderr is not None
        said = next(line for line in iter(nodes[0].stderr.readline, b"") if b"nothing is lost" in line).decode()
        assert said.startswith(f"{tmp_path}/node-0")
        assert nodes[0].poll() is None
        before = read_archive(tmp_path / "node-0" / "state")
        resource.prlimit(nodes[0].pid, kind, (hard, hard))
        assert [each.wait(LONG_S) for each in nodes] == [0, 0]
    states = [read_archive(tmp_path / f"node-{node}" / "state") for node in range(2)]
    expected = 2 * Toy(0, 2, 0).first_model()["w"].astype(np.float64)
    for node, state in enumerate(states):
        assert state["kept/rounds"].tolist() == list(range(1, rounds + 1))
        for number in state["kept/rounds"]:
            expected += np.random.default_rng([0, node, int(number)]).standard_normal(N, np.float32)
    assert len(before["kept/rounds"]) < rounds
    total = np.sum([state["node/model"] for state in states], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, expected, atol=1e-3)
    assert lines_of(tmp_path, 0) == rounds
    assert not list((tmp_path / "node-0").glob("*.partial"))


def attacked(folder: Path, pool: ThreadPoolExecutor, rounds: int) -> tuple[list[int], dict[int, Node], int]:
    """Start nodes 0 and 2 of three; node 1 is the attacker.  Return the ports, the nodes, and the training's number."""
    ports = free_ports(3)
    make_keys(folder, 3)
    paths = [
        write_settings(
            folder, node, ports, tls(folder, node), rounds=rounds, silence=1.0, task="tests.gossip.peers.toy:Slow"
        )
        for node in range(3)
    ]
    nodes = {node: Node(paths[node], pool) for node in (0, 2)}
    return ports, nodes, training(paths[1])


@pytest.mark.system
def test_a_neighbor_that_names_the_last_round_skips_nobodys_training(tmp_path: Path) -> None:
    rounds = 15
    with ThreadPoolExecutor(2) as pool:
        ports, nodes, number = attacked(tmp_path, pool, rounds)
        assert nodes[0].started.wait(LONG_S)
        for node in nodes:
            with channel(tmp_path, ports[node], 1, node) as opened:
                requests: list[tuple[str, Any]] = [
                    ("Hello", pb.HelloRequest(training=number, node=1, round=rounds)),
                    ("Fetch", pb.FetchRequest(training=number, node=1, round=rounds)),
                ]
                for method, request in requests:
                    with pytest.raises(grpc.RpcError):
                        opened.unary_unary(f"/{SERVICE}/{method}")(request.SerializeToString(), timeout=0.2)
        for each in nodes.values():
            each.done.result(LONG_S)
    for node, each in nodes.items():
        assert [row["round"] for row in each.rows] == list(range(1, rounds + 1))
        assert all(row["used"] == [2 - node] for row in each.rows[2:])


@pytest.mark.system
def test_a_neighbor_that_holds_calls_takes_no_place_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that wait for the last round, calls whose message never comes, and monitors that never ask."""
    monkeypatch.setattr("fedcomp.gossip.peers.loop.GRACE_S", 0.2)  # the calls that are held do not end by themselves
    rounds, release = 14, threading.Event()

    def never() -> Iterator[Any]:
        release.wait(LONG_S)
        yield from ()

    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        stack.callback(release.set)
        ports, nodes, number = attacked(tmp_path, pool, rounds)
        assert nodes[0].started.wait(LONG_S)
        opened = [stack.enter_context(channel(tmp_path, ports[0], 1, 0)) for _ in range(4)]
        request = pb.HelloRequest(training=number, node=1, round=rounds).SerializeToString()
        for each in opened:
            for _ in range(8):
                stack.callback(each.unary_unary(f"/{SERVICE}/Hello").future(request, timeout=LONG_S).cancel)
                stack.callback(each.stream_unary(f"/{SERVICE}/Deliver").future(never(), timeout=LONG_S).cancel)
                stubs: Any = reflection_pb2_grpc.ServerReflectionStub(each)
                stack.callback(stubs.ServerReflectionInfo(never(), timeout=LONG_S).cancel)
        seen = len(nodes[0].rows)
        assert seen < rounds // 2, "most rounds are still to come"
        with channel(tmp_path, ports[0], 2, 0) as honest:
            health: Any = health_pb2_grpc.HealthStub(honest)
            check = health_pb2.HealthCheckRequest(service=SERVICE)
            assert health.Check(check, timeout=30, wait_for_ready=True).status == 1, "a monitor gets through"
            for _ in range(20):
                with pytest.raises(grpc.RpcError) as caught:
                    opened[0].unary_unary(f"/{SERVICE}/Hello")(request, timeout=0.2)
                error: Any = caught.value
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    break
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "the attacker has used up its own share"
        for node in nodes.values():
            node.done.result(LONG_S)
    assert all(row["used"] == [2] for row in nodes[0].rows[seen:])
    assert all(len(node.rows) == rounds for node in nodes.values())
