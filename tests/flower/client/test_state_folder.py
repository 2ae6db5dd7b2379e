"""A device that restarts continues from its files; damaged and foreign files are set aside and not used."""

import errno
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.core import write_archive
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.state_folder import MAX_REPLAYED_FRAMES, StateFiles, StateFolder
from fedcomp.flower.client.store import open_store
from fedcomp.sync import Publisher, Subscriber
from fedcomp.sync.replica import start_replica
from fedcomp.wire.frame import Frame, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import Ack
from tests.flower.toy import app, checkpoint_at, floats, model, state_of

NODES = 4


def _in(folder: Path) -> Callable[[int], UserConfig]:
    return lambda node: {"state-dir": str(folder / f"node-{node}")}


def _strategy(checkpoint: Path | None = None) -> CompressedStrategy:
    inner = FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
    link = fedcomp.stc(density=0.05)
    return CompressedStrategy(inner, uplink=link, downlink=link, checkpoint=checkpoint_at(checkpoint))


def _state(number: int = 1, training_id: int = 7) -> ClientState:
    rng = np.random.default_rng(number)
    arrays = {"w": rng.standard_normal((20, 5), np.float32), "steps": np.array(number)}
    replica = start_replica(layout_of(arrays), arrays, version=number)
    pending = Frame(Kind.UPDATE, 1, 0, number, number, 1, 2, 2**60 + number, b"payload").to_bytes()
    return ClientState(
        Subscriber(
            replica=replica,
            memory={"residual": rng.standard_normal(100, np.float32), "counts": np.arange(3)},
            number=2**60 + number,
            pending=pending,
            pending_number=2**60 + number,
            uplink="stc(density=0.1)",
            node=2**63 + 5,
        ),
        training_id=training_id,
        local={"head": Array(rng.standard_normal((2, 3)))},
        answer={"metrics": MetricRecord({"loss": 0.25, "list": [1, 2]}), "more": ConfigRecord({"bytes": b"\0\1"})},
        answer_key="arrays",
    )


def _save(path: Path, state: ClientState) -> None:
    """Save `state` as a process that has just started."""
    with StateFolder(path, RecordDict()) as folder:
        folder.load(state.training_id)
        folder.save(state)


def _same(one: ClientState, other: ClientState) -> None:
    assert one.plain() == other.plain()
    assert one.answer == other.answer
    assert {name: array.data for name, array in one.local.items()} == {n: a.data for n, a in other.local.items()}
    mine, theirs = one.arrays() | one.model(), other.arrays() | other.model()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        assert array.dtype == theirs[name].dtype
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_a_saved_state_comes_back_to_the_bit_and_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "a" / f"{7:016x}" / ".model-3-0123456789abcdef.x.partial"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a model")
    _save(tmp_path / "a", _state())
    assert not left.exists()
    with StateFolder(tmp_path / "a", RecordDict()) as folder:
        back = folder.load(7)
        _same(back, _state())
        assert all(array.flags.writeable for array in back.subscriber.memory.values())
        assert back.subscriber.held.vector.flags.writeable


def test_a_first_replica_that_came_by_frames_is_written_as_a_model(tmp_path: Path) -> None:
    state = _state()
    replica = state.subscriber.held
    frame = Frame(Kind.DELTA, 1, 0, 0, replica.version, 0, 0, replica.fingerprint, b"short")
    StateFiles(tmp_path).write(replace(state, followed=(frame,)))
    _same(StateFiles(tmp_path).read(), state)


@pytest.mark.parametrize("deltas", [MAX_REPLAYED_FRAMES, MAX_REPLAYED_FRAMES + 1])
def test_a_replay_counts_as_its_deltas(deltas: int, tmp_path: Path) -> None:
    """Each of them takes time whenever the state is read: with more than a few the model is written."""
    arrays, rng = {"w": np.zeros(40_000, np.float32)}, np.random.default_rng(0)
    first = start_replica(layout_of(arrays), arrays, 1)
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays, 1))
    for _ in range(deltas):
        publisher.publish(rng.standard_normal(40_000, np.float32), b"", fedcomp.eden(bits=0.002), seed=0)
    (data,) = publisher.route(*first.place).frames
    frame, files, state = parse_single_frame(data), StateFiles(tmp_path), ClientState(Subscriber(first), training_id=7)
    assert frame.kind is Kind.REPLAY
    files.write(state)
    (model_file,) = tmp_path.glob("model-*")
    followed = replace(state, subscriber=Subscriber(first.advance(frame)), followed=(frame,))
    files.write(followed)
    assert model_file.exists() == (deltas <= MAX_REPLAYED_FRAMES)
    _same(StateFiles(tmp_path).read(), replace(followed, followed=()))


@pytest.mark.parametrize("shared_start", [False, True])
def test_a_node_that_begins_anew_writes_its_model(tmp_path: Path, *, shared_start: bool) -> None:
    """The frame that it begins with may be short; a start frame cannot be read again without the app."""
    arrays, rng = {"w": np.zeros(40_000, np.float32)}, np.random.default_rng(0)
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays), shared_start=shared_start)
    publisher.publish(rng.standard_normal(40_000, np.float32), b"", fedcomp.stc(density=0.001), seed=0)
    message, _ = publisher.message_to(1, "dense()", 0)
    frames = tuple(map(parse_single_frame, message.frames))
    assert [frame.kind for frame in frames] == [Kind.START if shared_start else Kind.KEY, Kind.DELTA]
    other = {"w": np.ones(40_000, np.float32)}
    files = StateFiles(tmp_path)
    state = ClientState(Subscriber(start_replica(layout_of(other), other, 5)), training_id=7)
    files.write(state)
    state.follow(message, frames, None, lambda: arrays)
    files.write(state)
    replica = publisher.replica
    assert [path.name for path in tmp_path.glob("model-*")] == [f"model-{replica.version}-{replica.fingerprint:016x}"]
    _same(StateFiles(tmp_path).read(), state)


def test_nodes_with_and_without_files_send_the_same_bytes(tmp_path: Path) -> None:
    runs = []
    for node_config in (None, _in(tmp_path)):
        random.seed(2)
        grid, strategy = LocalGrid(app(), NODES, node_config=node_config), _strategy()
        strategy.start(grid, model(), num_rounds=8)
        runs.append((strategy, grid))
    (plain, _), (files, grid) = runs
    np.testing.assert_array_equal(floats(files.arrays), floats(plain.arrays))
    assert files.ledger.uplink_bytes == plain.ledger.uplink_bytes
    assert files.ledger.downlink_bytes == plain.ledger.downlink_bytes
    for context in grid.contexts.values():
        assert not any(name.startswith("fedcomp") and name != "fedcomp.training" for name in context.state)


def test_nodes_and_server_continue_after_a_restart_without_a_difference(tmp_path: Path) -> None:
    random.seed(3)
    whole, whole_grid = _strategy(), LocalGrid(app(), NODES)
    whole.start(whole_grid, model(), num_rounds=12)

    random.seed(3)
    first, grid = _strategy(tmp_path / "checkpoint"), LocalGrid(app(), NODES, node_config=_in(tmp_path))
    first.start(grid, model(), num_rounds=7)
    second, grid = _strategy(), LocalGrid(app(), NODES, node_config=_in(tmp_path))  # every Context.state is empty
    second.load(tmp_path / "checkpoint")
    second.start(grid, second.arrays, num_rounds=5)

    np.testing.assert_array_equal(floats(second.arrays), floats(whole.arrays))
    assert second.ledger.downlink_bytes == whole.ledger.downlink_bytes, "no additional key frame"
    assert second.ledger.refused == 0
    for node, context in grid.contexts.items():
        mine, theirs = state_of(context), state_of(whole_grid.contexts[node])
        np.testing.assert_array_equal(mine.memory["residual"], theirs.memory["residual"])


@pytest.mark.sample(4)
@pytest.mark.one_flower
@pytest.mark.parametrize("file", ["state", "model-*"])
@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "foreign", "other format", "away"])
def test_a_damaged_file_is_set_aside_and_the_node_gets_a_key_frame(
    file: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    random.seed(4)
    strategy = _strategy()
    strategy.start(LocalGrid(app(), NODES, node_config=_in(tmp_path)), model(), num_rounds=4)
    (path,) = (tmp_path / "node-1").glob(f"*/{file}")
    data = path.read_bytes()
    place = data.index(b"residual" if file == "state" else b"base.npy") + 400
    path.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "bit": data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :],
            "empty": b"",
            "foreign": b"%PDF-1.7 not a state at all",
            "other format": data,
            "away": b"",
        }[damage]
    )
    if damage == "away":
        path.unlink()
    if damage == "other format":  # valid, but of another format, and with a model of another version
        with np.load(path) as archive:
            arrays = {name: archive[name].tobytes() for name in archive.files}
        key, old, new = ("kept", b'"2"', b'"3"') if file == "state" else ("plain", b'"version": "', b'"version": "7')
        assert old in arrays[key]
        arrays[key] = arrays[key].replace(old, new)
        dtypes = {"vector": np.float32, "base": np.float32, "memory.residual": np.float32, "counts": np.int32}
        parts = {name: np.frombuffer(a, dtypes.get(name, np.uint8)) for name, a in arrays.items()}
        write_archive(path, parts)
    caplog.set_level("WARNING", logger="flwr")
    grid = LocalGrid(app(), NODES, node_config=_in(tmp_path))
    strategy.inner.fraction_train = 1.0  # type: ignore[attr-defined]
    before = strategy.ledger.by_node()[1].first_model_bytes
    strategy.start(grid, strategy.arrays, num_rounds=2)
    messages = [record.getMessage() for record in caplog.records]
    if (file, damage) != ("state", "away"):  # then there is nothing to set aside
        assert any(str(path.parent) in text for text in messages), messages
        assert path.parent.with_suffix(".damaged").is_dir()
    assert strategy.ledger.by_node()[1].first_model_bytes - before > 4000, "a key frame of 1025 entries"
    assert strategy.ledger.by_node()[1].refused == 1, "the node asked for a key frame once"
    for context in grid.contexts.values():
        assert state_of(context).held.version == strategy.version - 1


@pytest.mark.one_flower
def test_every_flipped_bit_of_the_central_directories_is_set_aside_or_harmless(tmp_path: Path) -> None:
    _save(tmp_path, _state())
    folder = tmp_path / f"{7:016x}"
    for path in (folder / "state", *folder.glob("model-*")):
        data = path.read_bytes()
        for place in range(data.rindex(b"PK\1\2"), len(data)):
            for bit in (0, 7):
                path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
                with StateFolder(tmp_path, RecordDict()) as opened:
                    state = opened.load(7)
                if folder.exists():
                    _same(state, _state())
                else:
                    assert state.subscriber.replica is None
                    folder.with_suffix(".damaged").rename(folder)
        path.write_bytes(data)


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _link_to_nothing(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nothing")


def _link_loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


@pytest.mark.parametrize("odd", [_folder, _link_to_nothing, _link_loop])
@pytest.mark.parametrize("name", ["state", "model-1-*", "model-2-{:016x}", ".state.x.partial"])
def test_a_folder_or_a_link_in_place_of_a_file_is_cleared_away(
    odd: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    _save(tmp_path, _state())
    folder = tmp_path / f"{7:016x}"
    name = name.format(_state(2).subscriber.held.fingerprint)
    odd(next(folder.glob(name), folder / name))
    for number in (2, 1):
        _save(tmp_path, _state(number))
        with StateFolder(tmp_path, RecordDict()) as opened:
            _same(opened.load(7), _state(number))
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("odd", [Path.touch, _link_to_nothing, _link_loop])
def test_what_is_no_folder_in_place_of_a_training_is_set_aside(odd: Callable[[Path], None], tmp_path: Path) -> None:
    odd(tmp_path / f"{7:016x}")
    _save(tmp_path, _state())
    with StateFolder(tmp_path, RecordDict()) as opened:
        _same(opened.load(7), _state())


def test_a_training_behind_a_link_continues(tmp_path: Path) -> None:
    _save(tmp_path / "other disk", _state())
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / f"{7:016x}").symlink_to(tmp_path / "other disk" / f"{7:016x}")
    for number in (1, 2):
        with StateFolder(tmp_path / "node", RecordDict()) as opened:
            _same(opened.load(7), _state(number))
            opened.save(_state(2))


def test_damaged_files_are_set_aside_where_a_file_or_a_link_has_the_name(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for make in (Path.touch, lambda path: path.symlink_to(kept), Path.mkdir):
        path = tmp_path / "node"
        _save(path, _state())
        (path / f"{7:016x}" / "state").write_bytes(b"damaged")
        make(path / f"{7:016x}.damaged")
        _save(path, _state())
        assert (path / f"{7:016x}.damaged" / "state").read_bytes() == b"damaged"
        assert kept.is_dir(), "a link is removed, and not what it leads to"
        shutil.rmtree(path)


def test_a_link_with_the_name_of_a_training_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{99:016x}").symlink_to(tmp_path / "elsewhere")
    for training_id in (1, 2, 3, 4, 5, 6):
        _save(tmp_path, _state(training_id=training_id))
    assert (tmp_path / "elsewhere").is_dir()


def test_files_that_cannot_be_opened_are_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the right to read them is missing, or no more files can be opened: they may be whole."""
    _save(tmp_path, _state())
    path, opened = tmp_path / f"{7:016x}" / "state", Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *args, **kwargs)

    with monkeypatch.context() as patched, StateFolder(tmp_path, RecordDict()) as folder:
        patched.setattr(Path, "open", refuse)
        for known in (7, 0):
            with pytest.raises(ValueError, match="Permission denied.*state'"):
                folder.load(known, [(1, 1)])
    with StateFolder(tmp_path, RecordDict()) as folder:
        _same(folder.load(7), _state())


def test_a_state_that_cannot_be_written_is_an_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + ".* room for .* needed .*No space left"):
        _save(tmp_path, _state())
    monkeypatch.undo()
    _save(tmp_path, _state())


def test_a_full_disk_costs_a_nodes_replies_until_there_is_room(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture
) -> None:
    strategy, grid = _strategy(), LocalGrid(app(), NODES, node_config=_in(tmp_path))
    strategy.start(grid, model(), num_rounds=3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # no file may grow beyond it
    try:
        strategy.start(grid, strategy.arrays, num_rounds=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (strategy.version, strategy.ledger.total().failed) == (3, 2)
    assert re.search(
        rf"state-dir is '{tmp_path}/node-\d'; room for the node's state is needed \(.*File too large", flower_log.text
    )
    strategy.start(grid, strategy.arrays, num_rounds=3)
    assert (strategy.version, strategy.ledger.total().failed, strategy.ledger.refused) == (6, 2, 0)


def test_the_lock_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / ".lock").symlink_to(tmp_path / "file")
    with pytest.raises(ValueError, match=r"state-dir.*\.lock"):
        _save(tmp_path / "node", _state())
    assert (tmp_path / "file").read_bytes() == b"kept"


def _run(strategy: CompressedStrategy, folder: Path, rounds: int) -> CompressedStrategy:
    """Continue with nodes that have just started."""
    random.seed(rounds)
    strategy.start(LocalGrid(app(), NODES, node_config=_in(folder)), model(), num_rounds=rounds)
    return strategy


def test_most_rounds_do_not_write_the_model(tmp_path: Path) -> None:
    random.seed(7)
    strategy, grid = _strategy(), LocalGrid(app(), 2, node_config=_in(tmp_path))
    strategy.inner.fraction_train = 1.0  # type: ignore[attr-defined]
    models = set()
    for _ in range(30):
        strategy.start(grid, model(), num_rounds=1)
        (written,) = (tmp_path / "node-1").glob("*/model-*")
        models.add(written.name)
    assert 2 <= len(models) <= 10


def test_another_training_starts_empty_and_the_first_can_continue(tmp_path: Path) -> None:
    whole = _run(_run(_strategy(), tmp_path / "whole", 5), tmp_path / "whole", 3)
    alone = _run(_strategy(), tmp_path / "alone", 6)
    first = _run(_strategy(), tmp_path / "both", 5)
    other = _run(_strategy(), tmp_path / "both", 6)
    _run(first, tmp_path / "both", 3)
    for mine, theirs in ((first, whole), (other, alone)):
        np.testing.assert_array_equal(floats(mine.arrays), floats(theirs.arrays))
        assert mine.ledger.downlink_bytes == theirs.ledger.downlink_bytes
        assert mine.ledger.refused == 0


def test_a_node_with_files_of_other_trainings_alone_gets_a_key_frame(tmp_path: Path) -> None:
    first = _run(_strategy(), tmp_path, 5)
    shutil.rmtree(tmp_path / "node-1")
    _run(_strategy(), tmp_path, 6)  # its messages have greater numbers
    first.inner.fraction_train = 1.0  # type: ignore[attr-defined]
    grid = LocalGrid(app(), NODES, node_config=_in(tmp_path))
    first.start(grid, model(), num_rounds=2)
    assert {node: totals.refused for node, totals in first.ledger.by_node().items() if node} == {1: 1, 2: 0, 3: 0, 4: 0}
    assert state_of(grid.contexts[1]).held.version == first.version - 1


def test_only_the_files_of_the_newest_trainings_are_kept_and_other_files_are_left_alone(tmp_path: Path) -> None:
    others = {"lost+found", ".cache", "2024", "0000000000000009.damaged"}
    for name in others:
        (tmp_path / name).mkdir()
    for training_id in (1, 2, 3, 4, 5, 6):
        with StateFolder(tmp_path, RecordDict()) as folder:
            folder.load(0, [(0, 0)])
            assert folder.load(training_id, [(0, 0)]).subscriber.number == 0
        _save(tmp_path, _state(training_id=training_id))
    kept = {f"{training_id:016x}" for training_id in (3, 4, 5, 6)}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == kept | others


def test_the_training_that_makes_room_is_named_and_their_number_is_a_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context(1, 1, {"state-dir": str(tmp_path), "state-dir-trainings": 2}, RecordDict(), {})
    with caplog.at_level("WARNING", logger="flwr"):
        for training_id in (1, 2, 1):
            with open_store(context) as store:
                store.load(training_id)
                store.save(_state(training_id=training_id))
        assert caplog.text == ""
        with open_store(context) as store:
            store.load(3)
            store.save(_state(training_id=3))
    [line] = [each.getMessage() for each in caplog.records]
    assert line.startswith(f"fedcomp: {tmp_path / f'{2:016x}'} is removed, the state of a training")
    assert line.endswith("state-dir-trainings is 2")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {f"{1:016x}", f"{3:016x}"}


@pytest.mark.parametrize("number", [0, -1, 1.5, "4", True])
def test_a_number_of_trainings_that_is_none_is_refused(number: object, tmp_path: Path) -> None:
    config = cast(UserConfig, {"state-dir": str(tmp_path), "state-dir-trainings": number})
    with pytest.raises(ValueError, match="state-dir-trainings is"), open_store(Context(1, 1, config, RecordDict(), {})):
        pass


def test_a_state_is_for_its_user_alone(tmp_path: Path) -> None:
    strategy = _strategy()
    config = _in(tmp_path / "new" / "folders")
    strategy.start(LocalGrid(app(), NODES, node_config=config), model(), num_rounds=2)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}
    assert any(path.name == "state" for path in made)


def test_a_state_never_names_a_missing_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fail_for_models(self: Path, target: Path) -> Path:
        if target.name.startswith("model-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    with StateFolder(tmp_path, RecordDict()) as folder:
        folder.load(7)
        folder.save(_state(1))
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", fail_for_models)
            with pytest.raises(ValueError, match="No space left"):
                folder.save(_state(2))
        folder.save(_state(2))
        _same(folder.load(7), _state(2))


def test_a_clock_that_ran_ahead_does_not_remove_the_newest_training(tmp_path: Path) -> None:
    for training_id in (1, 2, 3, 4, 5):
        _save(tmp_path, _state(training_id=training_id))
        if training_id < 5:
            os.utime(tmp_path / f"{training_id:016x}" / "state", (2**33, 2**33))
    with StateFolder(tmp_path, RecordDict()) as folder:
        _same(folder.load(5), _state(training_id=5))


def test_the_state_of_a_training_without_an_id_is_in_the_context(tmp_path: Path) -> None:
    records = RecordDict()
    with StateFolder(tmp_path, records) as folder:
        state = folder.load(0, [(1, 2)])
        state.subscriber.number = 5
        folder.save(state)
    with StateFolder(tmp_path, records) as folder:
        assert folder.load(0, [(1, 2)]).subscriber.number == 5


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    with StateFolder(tmp_path, RecordDict()) as folder:
        lock = [link for link in Path("/proc/self/fd").iterdir() if _leads_to(link, tmp_path / ".lock")]
        kept = os.dup(int(lock[0].name))
    try:
        waiting = threading.Thread(target=lambda: StateFolder(tmp_path, RecordDict()).__enter__(), daemon=True)
        waiting.start()
        waiting.join(timeout=20)
        assert not waiting.is_alive()
    finally:
        os.close(kept)
    del folder


def _leads_to(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except OSError:
        return False


def test_trainings_that_are_dated_in_the_future_do_not_outlive_those_in_use(tmp_path: Path) -> None:
    for old in (1, 2, 3):
        _save(tmp_path, _state(training_id=old))
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            os.utime(folder / "state", ns=(2**62, 2**62))
    for number in (1, 2, 3):
        for training_id in (7, 8):
            with StateFolder(tmp_path, RecordDict()) as files:
                found = files.load(training_id)
                assert (found.subscriber.replica is None) == (number == 1)
                files.save(_state(training_id=training_id) if number == 1 else found)


def test_a_state_that_is_dated_at_the_epoch_is_read(tmp_path: Path) -> None:
    _save(tmp_path, _state())
    os.utime(tmp_path / f"{7:016x}" / "state", ns=(0, 0))
    with StateFolder(tmp_path, RecordDict()) as folder:
        assert folder.load(7).subscriber.replica is not None


def test_two_flower_runs_that_take_turns_keep_their_trainings(tmp_path: Path) -> None:
    mine, yours = RecordDict(), RecordDict()
    for number in (1, 2, 3):
        for training_id, records in ((7, mine), (8, yours)):
            with StateFolder(tmp_path, records) as folder:
                state = folder.load(training_id if number == 1 else 0, [(1, 2)])
                assert state.subscriber.number == (0 if number == 1 else number - 1)
                assert state.training_id == training_id
                state.subscriber.number = number
                folder.save(state)


def test_the_second_message_waits_for_the_first(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with StateFolder(tmp_path, RecordDict()):
            order.append("second")

    waiting = threading.Thread(target=second)
    with StateFolder(tmp_path, RecordDict()):
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


@pytest.mark.one_flower
def test_a_process_killed_while_writing_leaves_a_valid_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.flower.client.test_state_folder import _save, _state\n"
        "for number in range(1, 10**6):\n"
        "    _save(Path(sys.argv[1]), _state(number))\n"
        "    print(number, flush=True)\n"
    )
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    ) as writer:
        assert writer.stdout is not None
        done = [int(writer.stdout.readline()) for _ in range(5)][-1]
        writer.send_signal(signal.SIGKILL)
    with StateFolder(tmp_path, RecordDict()) as folder:
        state = folder.load(7)
        number = state.subscriber.number - 2**60
        assert number >= done
        _same(state, _state(number))
    _save(tmp_path, _state(number + 1))
    with StateFolder(tmp_path, RecordDict()) as folder:
        _same(folder.load(7), _state(number + 1))
    assert not list(tmp_path.glob("*.damaged"))


def test_a_node_with_a_new_id_does_not_take_its_pending_update_back(tmp_path: Path) -> None:
    random.seed(6)
    strategy, grid = _strategy(), LocalGrid(app(), 2, node_config=_in(tmp_path))
    strategy.inner.fraction_train = 1.0  # type: ignore[attr-defined]
    strategy.start(grid, model(), num_rounds=1)
    one, other = state_of(grid.contexts[1]), state_of(grid.contexts[1])
    assert one.pending
    one.settle(Ack(), node=1)
    other.settle(Ack(), node=99)
    before = state_of(grid.contexts[1]).memory["residual"]
    assert not np.array_equal(one.memory["residual"], before)
    np.testing.assert_array_equal(other.memory["residual"], before)
    assert not other.pending


@pytest.mark.parametrize(
    ("value", "text"),
    [(5, "state-dir .* is 5"), ("{file}", "writable folder"), ("state", "absolute path")],
)
def test_an_unusable_state_dir_is_refused(value: object, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = cast(UserConfig, {"state-dir": str(tmp_path / "file") if value == "{file}" else value})
    context = Context(1, 1, config, RecordDict(), {})
    with pytest.raises(ValueError, match=text), open_store(context):
        pass


def test_what_the_client_app_keeps_in_its_context_survives_too(tmp_path: Path) -> None:
    """Such as a momentum.  A restarted node has an empty Context; in one that goes on, what the app has deleted stays away."""
    context = RecordDict(
        {
            "fedcomp_app": ConfigRecord({"a": 1}),
            "momentum": ConfigRecord({"of": "round 1"}),
            "seen": MetricRecord({"rounds": 3}),
        }
    )
    with StateFolder(tmp_path, context) as folder:
        folder.load(7)
        folder.save(_state())
    restarted = RecordDict()
    with StateFolder(tmp_path, restarted) as folder:
        folder.load(7)
        folder.save(_state(2))
        del restarted["seen"], restarted["fedcomp_app"]
        restarted["momentum"] = ConfigRecord({"of": "round 2"})
        folder.load(7)
        assert "seen" not in restarted
        assert restarted["momentum"] == ConfigRecord({"of": "round 2"})
        folder.save(_state(3))
    again, other, busy = RecordDict(), RecordDict(), RecordDict({"momentum": ConfigRecord({"of": "round 4"})})
    with StateFolder(tmp_path, busy) as folder:
        folder.load(7)
        assert busy["momentum"] == ConfigRecord({"of": "round 4"}), "what the app has written since the restart stays"
    with StateFolder(tmp_path, again) as folder:
        folder.load(7)
        assert dict(again) == {"momentum": ConfigRecord({"of": "round 2"})}
    with StateFolder(tmp_path, other) as folder:
        folder.load(8)
        assert not other, "another training begins with nothing"


def test_a_query_after_a_restart_finds_what_the_client_app_kept_in_its_run(tmp_path: Path) -> None:
    """A query names no training.  What it finds nothing of, it would begin anew, in the place of what is in the files."""
    client_app = app()

    @client_app.query()
    def count(message: Message, context: Context) -> Message:
        number = int(str(context.state.config_records.get("count", {"n": 0})["n"])) + 1
        context.state["count"] = ConfigRecord({"n": number})
        return Message(RecordDict({"metrics": MetricRecord({"n": number})}), reply_to=message)

    def counted(grid: LocalGrid) -> list[object]:
        replies = grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.contexts])
        return [cast(MetricRecord, reply.content["metrics"])["n"] for reply in replies]

    def restarted(run_id: int = 1) -> LocalGrid:
        grid = LocalGrid(client_app, NODES, node_config=_in(tmp_path))
        for context in grid.contexts.values():
            context.run_id = run_id
        return grid

    strategy, grid = CompressedStrategy(FedAvg(fraction_evaluate=0.0)), restarted()
    assert counted(grid) == [1] * NODES, "there are no files yet"
    strategy.start(grid, model(), num_rounds=1)
    assert counted(restarted(run_id=2)) == [1] * NODES, "another run begins with nothing"
    grid = restarted()
    assert counted(grid) == [2] * NODES
    strategy.start(grid, strategy.arrays, num_rounds=1)
    assert counted(restarted()) == [3] * NODES
    for context in restarted().contexts.values():
        (tmp_path / f"node-{context.node_id}" / f"{strategy.publisher.training_id:016x}" / "state").write_bytes(
            b"damage"
        )
    assert counted(restarted()) == [1] * NODES


def test_a_query_needs_no_state_dir_that_can_be_used() -> None:
    client_app = app()

    @client_app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    grid = LocalGrid(
        client_app, 1, node_config=lambda _: {"state-dir": f"/{'x' * 300}"}
    )  # no file system has such names
    (reply,) = grid.send_and_receive([Message(RecordDict(), 1, "query")])
    assert reply.has_content()
