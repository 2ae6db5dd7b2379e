"""A SuperLink and a SuperNode on loopback: which nodes it accepts, and which processes it leaves."""

import contextlib
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.federation import Federation
from deploy.flower_programs import SuperNode
from deploy.keys import make_server
from deploy.program import Program, wait_until
from deploy.run_config import LaunchError
from fedcomp.__main__ import main
from fedcomp.warm import unsupported
from tests.deploy.live_federation import carriers, fork_servers, start_node, stop_node

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is left behind")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A running federation of one node; after the tests, no process of it is left."""
    with Federation(tmp_path_factory.mktemp("federation") / "of one", nodes=1) as federation:
        federation.start()
        yield federation
    assert not carriers(federation.mark)


@pytest.mark.system
def test_only_its_own_authority_verifies_the_superlink(federation: Federation, tmp_path: Path) -> None:
    assert federation.superlink.answers()
    make_server(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.get_server_certificate(("127.0.0.1", federation.port), ca_certs=str(tmp_path / "other" / "ca.pem"))


@pytest.mark.system
def test_the_doctor_finds_the_superlink(federation: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"127.0.0.1:{federation.port}", "--root-certificates", str(federation.authority)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok     it speaks HTTP"


@pytest.mark.system
def test_all_programs_are_forked_from_one_server(federation: Federation) -> None:
    if unsupported():
        pytest.skip(unsupported())
    [server] = fork_servers(Program("all", federation.mark, Path()))
    programs = {"flower-superlink", "flower-supernode", "flower-superexec"}

    def names() -> set[str]:
        return {Path(word).name for process in server.children() for word in process.cmdline()[:1]}

    assert wait_until(lambda: names() >= programs, 10), names()


@pytest.mark.system
def test_all_sockets_listen_on_loopback(federation: Federation) -> None:
    held = set()
    for program in federation.programs:
        for process in program.processes():
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed since it was listed: what listens stays open
                    held.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))  # noqa: PTH115
    listening = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        listening += [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in held]
    assert len(listening) >= 3  # the SuperLink, its health, the SuperNode's ClientApps
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, as either family writes it


@pytest.mark.system
def test_a_node_with_an_unregistered_key_is_refused(federation: Federation, tmp_path: Path) -> None:
    intruder = SuperNode.make(1, 2, tmp_path / "intruder", f"{federation.mark}intruder/")
    intruder.superlink = federation.superlink.address
    try:
        intruder.start(federation.authority)
        assert wait_until(lambda: not intruder.program.running(), 60)
        assert not intruder.connected()
        assert "Failed to activate SuperNode" in intruder.log_text()
        assert len(federation.control.nodes()) == 1
    finally:
        intruder.program.signal(signal.SIGKILL)


@pytest.mark.system
def test_a_node_returns_under_the_same_id(federation: Federation) -> None:
    [node] = federation.nodes
    stop_node(federation, 0)
    assert not node.program.processes()
    start_node(federation, 0)
    assert f"SuperNode ID: {node.node_id}" in node.log_text()
    assert federation.control.nodes() == {node.node_id: "online"}
    with pytest.raises(LaunchError, match="SuperNode 0 "):
        start_node(federation, 0)
    with pytest.raises(LaunchError, match="SuperLink"):
        federation.start_superlink()


@pytest.mark.system
def test_a_signal_reaches_all_processes_of_a_node(federation: Federation) -> None:
    program = federation.nodes[0].program
    assert wait_until(lambda: len(program.processes()) == 2, 20)  # the SuperNode, and what starts its ClientApps
    program.signal(signal.SIGSTOP)
    assert wait_until(lambda: {process.status() for process in program.processes()} == {psutil.STATUS_STOPPED}, 10)
    program.signal(signal.SIGCONT)
    assert wait_until(lambda: psutil.STATUS_STOPPED not in {process.status() for process in program.processes()}, 10)
    program.signal(signal.SIGKILL)
    assert wait_until(lambda: not program.processes(), 10)


def test_a_federation_without_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="0 nodes; .*1"):
        Federation(tmp_path / "federation", nodes=0)
    assert not (tmp_path / "federation").exists()
