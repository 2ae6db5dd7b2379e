"""A checkpoint does not grow with the rounds; the record beside it does, and agrees with it after any end."""

import errno
import os
import re
import resource
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import Checkpoint, CompressedStrategy, LocalGrid
from fedcomp.flower.server.model.traffic_file import SUFFIX
from fedcomp.sync import ROW, Ledger
from tests.flower.toy import app, model

NODES = 3
STC = fedcomp.stc(density=0.1)


def build(path: Path) -> CompressedStrategy:
    return CompressedStrategy(FedAvg(), uplink=STC, downlink=STC, checkpoint=Checkpoint(path))


def record(path: Path) -> Ledger:
    return Ledger.from_array(np.fromfile(path.with_name(path.name + SUFFIX), ROW))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_the_record_holds_the_traffic_of_all_rounds_and_of_their_evaluations(path: Path) -> None:
    strategy = build(path)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=4)
    whole = strategy.ledger.by_round_and_node()
    assert record(path).by_round_and_node() == whole
    assert {number for number, _ in whole} == {1, 2, 3, 4}
    strategy.save(path)
    assert record(path).by_round_and_node() == whole


def add_rounds(strategy: CompressedStrategy, until: int) -> None:
    """Add rounds before `until`, in each of which each node sends a byte."""
    for number in range(strategy.round + 1, until):
        for node in range(1, NODES + 1):
            strategy.ledger.add(number, node, uplink_bytes=1)
    strategy.round = until - 1


def test_a_checkpoint_of_many_rounds_is_as_large_as_one_of_few(path: Path) -> None:
    strategy, sizes = build(path), []
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    for rounds in (3_000, 6_000):
        add_rounds(strategy, rounds)
        strategy.save(path)
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100
    assert path.with_name(path.name + SUFFIX).stat().st_size > 17_000 * ROW.itemsize


class Ending(LocalGrid):
    """A grid that ends the server at its `last`-th call, when it has sent messages and gets no replies."""

    def __init__(self, last: int) -> None:
        super().__init__(app(), NODES)
        self.left = last

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return super().send_and_receive(messages, timeout=timeout)


@pytest.mark.parametrize("last", [1, 2, 4, 5])
def test_a_server_that_is_ended_and_resumed_counts_no_traffic_twice(last: int, path: Path) -> None:
    grid, strategy = Ending(last), build(path)
    with pytest.raises(KeyboardInterrupt):
        strategy.start(grid, model(), num_rounds=4)
    with path.with_name(path.name + SUFFIX).open("ab") as file:
        file.write(b"torn")  # of a save that did not end
    again = build(path)
    again.load(path)
    again.start(grid, model(), num_rounds=4 - again.round)
    again.save(path)
    assert record(path).by_round_and_node() == again.ledger.by_round_and_node()
    assert record(path).total() == again.ledger.total()
    assert again.nodes[1].heard == 4


def test_another_spelling_of_the_path_is_the_same_checkpoint(path: Path) -> None:
    strategy = build(path)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=1)
    add_rounds(strategy, 500)
    strategy.save(path)
    link = path.with_name("link")
    link.symlink_to(path.parent)
    again = build(path)
    again.load(link / path.name)
    add_rounds(again, 501)
    again.save(path.parent / ".." / path.parent.name / path.name)
    assert set(record(path).by_round()) == set(range(1, 501))


def test_a_lost_record_is_a_warning_and_the_sums_are_whole(path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    grid, strategy = LocalGrid(app(), NODES), build(path)
    strategy.start(grid, model(), num_rounds=2)
    path.with_name(path.name + SUFFIX).unlink()
    again = build(path)
    again.load(path)
    assert "checkpoint.traffic is missing: it lacks the traffic of some rounds" in flower_log.text
    assert {state.heard for state in again.nodes.values()} == {2}
    again.start(grid, model(), num_rounds=2)
    assert set(record(path).by_round()) == {3, 4}
    assert set(again.ledger.by_round()) == {1, 2, 3, 4}
    assert again.nodes.keys() == strategy.nodes.keys()


def test_a_record_that_was_cut_is_a_warning_with_both_sizes(path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    build(path).start(LocalGrid(app(), NODES), model(), num_rounds=2)
    file = path.with_name(path.name + SUFFIX)
    size = file.stat().st_size
    os.truncate(file, ROW.itemsize)
    build(path).load(path)
    [line] = [text for each in flower_log.records if "checkpoint.traffic" in (text := each.getMessage())]
    assert f"{file} holds {ROW.itemsize} of {size} bytes: it lacks the traffic of some rounds" in line


def test_the_record_and_the_checkpoint_are_for_their_user_alone(path: Path) -> None:
    file = path.with_name(path.name + SUFFIX)
    file.touch(mode=0o644)  # as an earlier version made it
    build(path).start(LocalGrid(app(), NODES), model(), num_rounds=1)
    assert [each.stat().st_mode & 0o777 for each in (file, path)] == [0o600, 0o600]


@contextmanager
def full_at(size: int) -> Generator[None]:
    """Let no file grow beyond `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("full", ["checkpoint", "checkpoint.traffic"])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_from_the_checkpoint_before(full: str, path: Path) -> None:
    strategy, grid = build(path), LocalGrid(app(), NODES)
    strategy.start(grid, model(), num_rounds=2)
    if full == "checkpoint.traffic":  # larger than the checkpoint is
        add_rounds(strategy, 300)
        strategy.save(path)
    before, file = path.read_bytes(), path.with_name(full)
    room = file.stat().st_size if full == "checkpoint.traffic" else len(before) // 2
    with full_at(room), pytest.raises(OSError, match=re.escape(str(file))) as raised:
        strategy.start(grid, strategy.arrays, num_rounds=1)
    assert raised.value.errno == errno.EFBIG
    assert str(raised.value).endswith(
        "and so no new checkpoint; the one before is whole: make room, and continue from it"
    )
    assert path.read_bytes() == before
    assert not [each for each in path.parent.iterdir() if "partial" in each.name]
    again = build(path)
    again.load(path)
    assert again.round == strategy.round - 1
    strategy.save(path)  # the server that was refused may go on as well, with all of its rows
    assert record(path).by_round_and_node() == strategy.ledger.by_round_and_node()
    again.start(grid, again.arrays, num_rounds=2)
    again.save(path)
    assert record(path).by_round_and_node() == again.ledger.by_round_and_node()


def test_a_run_that_goes_on_under_another_checkpoint_begins_a_record_there(path: Path) -> None:
    grid, strategy = LocalGrid(app(), NODES), build(path)
    strategy.start(grid, model(), num_rounds=2)
    other = path.with_name("other")
    again = build(other)
    again.load(path)
    again.start(grid, model(), num_rounds=2)
    again.save(other)
    assert record(other).by_round_and_node() == again.ledger.by_round_and_node()
    fresh = build(other)
    fresh.start(LocalGrid(app(), NODES), model(), num_rounds=1)
    fresh.save(other)
    assert set(record(other).by_round()) == {1}, "a new run begins a new record"


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_or_link_in_place_of_the_record_is_refused_and_left_alone(kind: str, path: Path) -> None:
    strategy = build(path)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    traffic = path.with_name(path.name + SUFFIX)
    traffic.unlink()
    traffic.mkdir() if kind == "folder" else traffic.symlink_to(path.parent / "elsewhere")
    with pytest.raises(ValueError, match=r"checkpoint\.traffic is a folder or a link"):
        build(path).load(path)
    with pytest.raises(ValueError, match="move it away"):
        strategy.save(path)
    assert not (path.parent / "elsewhere").exists()


def test_a_record_that_is_removed_during_a_run_has_no_empty_rows(path: Path) -> None:
    strategy = build(path)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    path.with_name(path.name + SUFFIX).unlink()
    strategy.start(LocalGrid(app(), NODES), strategy.arrays, num_rounds=2)
    strategy.save(path)
    assert min(record(path).by_round()) > 0
