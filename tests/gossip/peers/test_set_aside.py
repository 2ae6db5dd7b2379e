"""State files that a node cannot use: it renames them, says so, and heals from its neighbours."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.environment import free_ports
from fedcomp.core import read_archive
from fedcomp.gossip.peers import read_settings, run
from fedcomp.gossip.peers.set_aside import MAX_KEPT, set_aside
from tests.gossip.peers.toy import write_settings

LONG_S = 120.0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def take_of_another_node(path: Path) -> None:
    path.write_bytes((path.parents[1] / "node-1" / "state").read_bytes())


def run_all(paths: list[Path]) -> None:
    with ThreadPoolExecutor(len(paths)) as pool:
        for done in [pool.submit(run, read_settings(path), lambda _: None) for path in paths]:
            done.result(LONG_S)


@pytest.mark.system
@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", [flip, empty, make_folder, link_nowhere, take_of_another_node])
def test_a_state_that_is_damaged_or_of_another_node_is_set_aside_and_the_node_heals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    """Its neighbours are in round 3, and have the bits of its new estimate at the end."""
    ports = free_ports(3)
    slow = {"task": "tests.gossip.peers.toy:Slow"}  # a second try to connect comes after a second
    run_all([write_settings(tmp_path, node, ports, rounds=3, **slow) for node in range(3)])
    state = tmp_path / "node-0" / "state"
    damage(state)
    kind = state.is_dir(), state.is_symlink()
    caplog.clear()
    run_all([write_settings(tmp_path, node, ports, rounds=14, **slow) for node in range(3)])
    (said,) = [each for each in caplog.messages if "starts from the first model" in each]
    assert said.startswith(f"{state} is not the state of this node: ")
    assert "it is renamed to state.damaged" in said
    aside = tmp_path / "node-0" / "state.damaged"
    assert (aside.is_dir(), aside.is_symlink()) == kind
    states = [read_archive(tmp_path / f"node-{node}" / "state") for node in range(3)]
    for node, each in enumerate(states):
        assert each["kept/rounds"].tolist()[-2:] == [13, 14]
        for other in {0, 1, 2} - {node}:
            assert each[f"node/held/{other}/vector"].tobytes() == states[other]["node/own/vector"].tobytes()


def test_a_state_of_another_training_is_kept_for_its_own(tmp_path: Path) -> None:
    ports = free_ports(2)
    run_all([write_settings(tmp_path, node, ports, rounds=2) for node in range(2)])
    whole = (tmp_path / "node-0" / "state").read_bytes()
    run_all([write_settings(tmp_path, node, ports, rounds=2, seed=1) for node in range(2)])
    run_all([write_settings(tmp_path, node, ports, rounds=1, seed=2) for node in range(2)])
    assert (tmp_path / "node-0" / "state.damaged").read_bytes() == whole
    assert len(list((tmp_path / "node-0").glob("state.damaged*"))) == 2
    for name, rows in (("rounds.jsonl", 1), ("rounds.jsonl.damaged", 2), ("rounds.jsonl.damaged-2", 2)):
        lines = (tmp_path / "node-0" / name).read_text().splitlines()
        assert [json.loads(line)["round"] for line in lines] == list(range(1, rows + 1)), name


def test_files_that_are_set_aside_are_few(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for count in range(MAX_KEPT + 2):
        path.write_text(str(count))
        set_aside(path)
    assert len(list(tmp_path.iterdir())) == MAX_KEPT
    assert (tmp_path / "state.damaged").read_text() == "0"
    assert (tmp_path / f"state.damaged-{MAX_KEPT}").read_text() == str(MAX_KEPT + 1)
