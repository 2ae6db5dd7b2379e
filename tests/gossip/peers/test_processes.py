"""Nodes over gRPC with TLS: the bits of one process, refusals, hostile bytes, and nodes that are killed."""

import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from deploy.environment import free_ports
from deploy.keys import make_peer
from deploy.monitor.snapshot import read_run
from deploy.program import wait_until
from fedcomp.core import read_archive
from fedcomp.gossip.__main__ import main
from fedcomp.gossip.peers import RefusedError, read_settings, run
from fedcomp.gossip.peers import gossip_pb2 as pb
from tests.gossip.peers.toy import N, Toy, alone, make_keys, tls, write_settings

ROOT = Path(__file__).parents[3]
METHODS = [
    "choco(topk(density=0.1, feedback=False), step_size=0.3)",
    "deep_squeeze(stc(density=0.1), step_size=0.1)",
    "choco(topk(density=0.1, feedback=False))",  # the nodes find the same step size as a network
]
LONG_S = 120.0


def silent(_row: Any) -> None:
    """Report nothing."""


@pytest.mark.system
@pytest.mark.parametrize(("method", "nodes"), list(zip(METHODS, (4, 4, 3), strict=True)))
def test_without_faults_nodes_over_tls_end_in_the_bits_of_one_process(tmp_path: Path, method: str, nodes: int) -> None:
    ports, rounds = free_ports(nodes), 4
    make_keys(tmp_path, nodes)
    settings = [
        read_settings(write_settings(tmp_path, node, ports, tls(tmp_path, node), method=method, rounds=rounds))
        for node in range(nodes)
    ]
    with ThreadPoolExecutor(nodes) as pool:
        for done in [pool.submit(run, each, silent) for each in settings]:
            done.result(LONG_S)
    for node, model in enumerate(alone("ring()", nodes, method, rounds)):
        state = read_archive(tmp_path / f"node-{node}" / "state")
        assert state["node/model"].tobytes() == model["w"].tobytes()
        assert int(state["own/steps"]) == rounds
        seen = read_run(tmp_path / f"node-{node}")
        assert (seen.state, len(seen.rounds), len(seen.nodes)) == ("completed", rounds, 2)
        assert all(0 < each.traffic.uplink_bytes < each.traffic.dense_uplink_bytes for each in seen.nodes)
    sent, received = (
        sum(getattr(row.traffic, name) for node in range(nodes) for row in read_run(tmp_path / f"node-{node}").nodes)
        for name in ("uplink_bytes", "downlink_bytes")
    )
    assert abs(sent - received) < 0.1 * sent, "the last hellos may be counted on one side alone"


def test_a_neighbor_that_starts_later_is_waited_for_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = free_ports(2)
    make_keys(tmp_path, 2)
    paths = [write_settings(tmp_path, node, ports, tls(tmp_path, node), rounds=2) for node in range(2)]
    rows: list[Any] = []
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, read_settings(paths[1]), rows.append)
        assert wait_until((tmp_path / "node-1" / "state").exists, LONG_S), "it has published"
        pool.submit(run, read_settings(paths[0]), silent).result(LONG_S)
        first.result(LONG_S)
    assert [row["used"] for row in rows] == [[0], [0]]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_node_that_has_done_all_rounds_says_so_and_keeps_its_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports, rows = free_ports(2), list[Any]()
    with ThreadPoolExecutor(2) as pool:
        paths = [write_settings(tmp_path, node, ports, rounds=2) for node in range(2)]
        for done in [pool.submit(run, read_settings(path), silent) for path in paths]:
            done.result(LONG_S)
    folder = tmp_path / "node-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "nodes.json"}
    changes: dict[str, Any] = {"rounds": 1, "silence": 0.2, "timeout": 5.0}
    with caplog.at_level(logging.INFO):
        run(read_settings(write_settings(tmp_path, 0, ports, **changes)), rows.append)
    (said,) = [each for each in caplog.messages if "nothing is left to train" in each]
    assert said.startswith(f"{folder} has 2 rounds, and rounds is 1: ")
    assert rows == []
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert (read_run(folder).state, read_run(folder).num_rounds) == ("completed", 2)


@pytest.mark.parametrize(
    ("text", "error", "state", "reason"),
    [("", KeyboardInterrupt, "stopped", ""), ("no memory" * 99, RuntimeError, "failed", ("no memory" * 99)[:500])],
)
def test_a_node_says_in_its_folder_how_it_ended(
    tmp_path: Path, text: str, error: type[BaseException], state: str, reason: str
) -> None:
    path = write_settings(tmp_path, 0, free_ports(2), task="tests.gossip.peers.toy:Ending", silence=0.2)
    path.write_text(f"{path.read_text()}\n[settings]\ntext = '{text}'\n")
    with pytest.raises(error):
        run(read_settings(path), silent)
    seen = read_run(tmp_path / "node-0")
    assert (seen.state, seen.reason) == (state, reason)


@pytest.mark.system
def test_a_node_that_starts_late_joins_the_others_in_their_round(tmp_path: Path) -> None:
    ports = free_ports(2)
    paths = [
        write_settings(tmp_path, node, ports, rounds=25, silence=0.2, task="tests.gossip.peers.toy:Slow")
        for node in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, read_settings(paths[0]), silent)
        assert wait_until(ready(tmp_path, 0, 5), LONG_S)
        pool.submit(run, read_settings(paths[1]), silent).result(LONG_S)
        first.result(LONG_S)
    trained = read_archive(tmp_path / "node-1" / "state")["kept/rounds"]
    assert trained[0] >= 5
    assert trained[-1] == 25


@pytest.mark.system
def test_hostile_bytes_are_refused_and_the_service_stays_healthy(tmp_path: Path) -> None:
    ports = free_ports(2)
    path = write_settings(tmp_path, 0, ports, timeout=60.0, silence=60.0)
    process = subprocess.Popen([sys.executable, "-m", "fedcomp.gossip", str(path)], cwd=ROOT)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            check = health_pb2.HealthCheckRequest(service="fedcomp.gossip.v1.Gossip")
            assert health.Check(check, wait_for_ready=True, timeout=60).status == 1
            services: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            listing = services.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            names = [each.name for each in next(iter(listing)).list_services_response.service]
            assert "fedcomp.gossip.v1.Gossip" in names
            huge, other = b"\x22\xff\xff\xff\xff\x0f", pb.HelloRequest(training=5, node=1, round=0).SerializeToString()
            stranger = pb.HelloRequest(training=5, node=9, round=0).SerializeToString()
            for method in ("Hello", "Fetch", "Deliver"):
                call = channel.unary_unary(f"/fedcomp.gossip.v1.Gossip/{method}")
                for data, code in [
                    (b"\xff\xff", "INVALID_ARGUMENT"),
                    (huge, "INVALID_ARGUMENT"),
                    (bytes(1 << 20), "RESOURCE_EXHAUSTED"),
                    (other, "FAILED_PRECONDITION"),
                    (stranger, "PERMISSION_DENIED"),
                ]:
                    with pytest.raises(grpc.RpcError) as caught:
                        call(data, timeout=30)
                    error: Any = caught.value
                    assert error.code().name == code
            assert health.Check(check, timeout=30).status == 1
    finally:
        process.terminate()
        assert process.wait(60) == 143


def test_a_certificate_of_another_authority_or_node_gets_no_answer(tmp_path: Path) -> None:
    ports = free_ports(2)
    make_keys(tmp_path, 2)
    make_peer(tmp_path / "stranger", 1)
    path = write_settings(tmp_path, 0, ports, tls(tmp_path, 0), timeout=60.0, silence=60.0)
    process = subprocess.Popen([sys.executable, "-m", "fedcomp.gossip", str(path)], cwd=ROOT)
    request = pb.HelloRequest(training=5, node=1, round=0).SerializeToString()

    def code(keys: str, node: int) -> str:
        files = [tmp_path / "keys" / "ca.pem", *(tmp_path / keys / f"node-{node}.{end}" for end in ("key", "pem"))]
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        with grpc.secure_channel(f"127.0.0.1:{ports[0]}", credentials) as channel:
            call = channel.unary_unary("/fedcomp.gossip.v1.Gossip/Hello")
            with pytest.raises(grpc.RpcError) as caught:
                call(request, timeout=10)
            error: Any = caught.value
            return str(error.code().name)

    try:
        assert wait_until(lambda: code("keys", 1) == "FAILED_PRECONDITION", 60), "the right one reaches the service"
        assert code("keys", 0) == "PERMISSION_DENIED"
        assert code("stranger", 1) == "UNAVAILABLE"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.system
def test_a_node_of_another_training_is_refused_with_a_sentence(tmp_path: Path) -> None:
    ports = free_ports(2)
    first = write_settings(tmp_path, 0, ports, timeout=60.0, silence=60.0)
    process = subprocess.Popen([sys.executable, "-m", "fedcomp.gossip", str(first)], cwd=ROOT)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
            grpc.channel_ready_future(channel).result(60)
        with pytest.raises(RefusedError, match="node 1 differs from node 0"):
            run(read_settings(write_settings(tmp_path, 1, ports, seed=1)), silent)
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "edges([[0, 1], [2, 3]])"}, "not connected"),
        ({"node": 7}, "node is 7"),
        ({"method": "choco(stc())"}, "remembers what it leaves out"),
        ({"rounds": 0}, "rounds is 0"),
        ({"listen": "127.0.0.1"}, "host:port is needed"),
        ({"listen": "192.0.2.1:80"}, "loopback addresses alone"),
        ({"insecure": False}, "tls has nothing"),
        ({"task": "tests.gossip.peers.toy:Nothing"}, "module:function is needed"),
        ({"task": "./mine.py:Task"}, "module:function is needed"),
        ({"task": ".mine:Task"}, "module:function is needed"),
        (
            {"task": "tests.gossip.peers.toy:Narrow"},
            "settings are {}, which tests.gossip.peers.toy:Narrow does not take",
        ),
        ({"colour": 1}, "unknown setting 'colour'"),
        ({"silence": "long"}, "silence is 'long'"),
    ],
)
def test_wrong_settings_are_one_sentence_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    path = write_settings(tmp_path, 0, [9100, 9101, 9102, 9103])
    lines = [line for line in path.read_text().splitlines() if line.split(" = ")[0] not in changes]
    new = [f"{key} = {str(each).lower() if isinstance(each, bool) else repr(each)}" for key, each in changes.items()]
    path.write_text("\n".join([*new, *lines]))
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "node-0").exists()


def test_a_tilde_in_a_path_of_the_settings_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    make_keys(home, 2)
    text = tls(tmp_path, 0).replace("'keys/", "'~/keys/")
    path = write_settings(tmp_path, 0, [9100, 9101], text, **{"state-dir": "~/node-0"})
    monkeypatch.setenv("HOME", str(home))
    settings = read_settings(path)
    assert settings.state_dir == home / "node-0"
    assert settings.tls is not None
    assert settings.tls.key == (home / "keys" / "node-0.key").read_bytes()
    for name, file in (("tls.ca", "~/keys/ca.pem"), ("state-dir", "~/node-0")):
        unknown = file.replace("~", "~nobody-of-this-name")
        path.write_text(path.read_text().replace(file, unknown))
        with pytest.raises(ValueError, match=f"{name} is '{unknown}': "):
            read_settings(path)
        path.write_text(path.read_text().replace(unknown, file))


def test_the_command_finds_a_task_next_to_the_settings(tmp_path: Path) -> None:
    """The command `fedcomp`, unlike `python -m`, does not have the working folder on its path; `-P` neither."""
    (tmp_path / "own_task.py").write_text(
        f"import sys\nsys.path.append({str(ROOT)!r})\nfrom tests.gossip.peers.toy import Toy"
    )
    path = write_settings(tmp_path, 0, [9100, 9101], task="own_task:Missing")
    command = [sys.executable, "-P", "-m", "fedcomp", "gossip", path.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "error: task is 'own_task:Missing'; module:function is needed (module 'own_task' has no att" in done.stderr


def lines_of(folder: Path, node: int) -> int:
    path = folder / f"node-{node}" / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "keys/node-1.key"}, "the key of the second one, are needed"),
        ({"certificate": "keys/damaged"}, "the key of the second one, are needed"),
        ({"key": "keys/damaged"}, "the key of the second one, are needed"),
        ({"ca": "keys/damaged"}, "the key of the second one, are needed"),
        ({"ca": "keys/none"}, "tls.ca is 'keys/none'; a readable file is needed"),
    ],
)
def test_keys_that_do_not_fit_are_one_sentence(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    make_keys(tmp_path, 2)
    (tmp_path / "keys" / "damaged").write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    text = tls(tmp_path, 0)
    for name, file in changes.items():
        text = "\n".join(f"{name} = '{file}'" if line.startswith(f"{name} ") else line for line in text.splitlines())
    path = write_settings(tmp_path, 0, [9100, 9101], text)
    with pytest.raises(ValueError, match=message) as error:
        read_settings(path)
    assert "\n" not in str(error.value)


@pytest.mark.system
def test_nodes_killed_with_9_keep_the_mean_and_the_bits_of_replicas(tmp_path: Path) -> None:
    """The sum of all models is that of all first models and of everything that training added in published rounds."""
    ports, rounds, seed = free_ports(4), 40, 0
    make_keys(tmp_path, 4)
    paths = [
        write_settings(
            tmp_path, node, ports, tls(tmp_path, node), rounds=rounds, task="tests.gossip.peers.toy:Slow", silence=5.0
        )
        for node in range(4)
    ]

    def start(node: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "fedcomp.gossip", str(paths[node])], cwd=ROOT)

    running = [start(node) for node in range(4)]
    try:
        for victim, after in ((1, 4), (2, 12), (0, 18), (3, 24)):
            assert wait_until(ready(tmp_path, victim, after), LONG_S)
            running[victim].kill()
            running[victim].wait(30)
            running[victim] = start(victim)
        assert [process.wait(LONG_S) for process in running] == [0, 0, 0, 0]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait(30)
    states = [read_archive(tmp_path / f"node-{node}" / "state") for node in range(4)]
    expected = 4 * Toy(0, 4, seed).first_model()["w"].astype(np.float64)
    for node, state in enumerate(states):
        for number in state["kept/rounds"]:
            noise = np.random.default_rng([seed, node, int(number)]).standard_normal(N, np.float32)
            expected += noise
    total = np.sum([state["node/model"] for state in states], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, expected, atol=1e-3)
    for node, state in enumerate(states):
        for other in ((node - 1) % 4, (node + 1) % 4):
            if state[f"node/held/{other}/place"].tobytes() == states[other]["node/own/place"].tobytes():
                assert state[f"node/held/{other}/vector"].tobytes() == states[other]["node/own/vector"].tobytes()


def ready(folder: Path, node: int, lines: int) -> Callable[[], bool]:
    return lambda: lines_of(folder, node) >= lines
