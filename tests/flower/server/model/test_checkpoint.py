"""The state of a server through a file and back."""

import errno
import os
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi, Strategy

import fedcomp
from fedcomp.core import from_json, read_archive, to_json, write_archive
from fedcomp.errors import CorruptError
from fedcomp.flower import (
    EF21,
    Checkpoint,
    CompressedStrategy,
    DynamicSampling,
    FedAMS,
    LocalGrid,
    MajorityVote,
    QcmdAdagrad,
    QrdaAdagrad,
)
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.server.model.checkpoint import explained
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from tests.flower.toy import Aggregate, Messages, app, floats, model, state_of

INNER: dict[str, Callable[..., FedAvg]] = {
    "FedAvg": FedAvg,
    "FedAvgM": partial(FedAvgM, server_momentum=0.9),
    "FedAdam": partial(FedAdam, beta_1=0.9, beta_2=0.99),
    "FedYogi": partial(FedYogi, beta_1=0.9, beta_2=0.99),
    "FedAMS": FedAMS,
    "QcmdAdagrad": QcmdAdagrad,
    "QrdaAdagrad": QrdaAdagrad,
    "QrdaAdagrad around zero": partial(QrdaAdagrad, center="zero"),
    "MajorityVote": MajorityVote,
    "EF21": EF21,
}
HALF: dict[str, Any] = {"fraction_train": 0.5, "fraction_evaluate": 0.0}


def _strategy(inner: Strategy, **more: Any) -> CompressedStrategy:
    stc = fedcomp.stc(density=0.05)
    uplink = fedcomp.parse("ef21(density=0.05)") if isinstance(aggregating(inner), EF21) else stc
    return CompressedStrategy(inner, uplink=uplink, downlink=stc, **more)


@pytest.mark.sample(7)
@pytest.mark.one_flower
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", INNER)
def test_a_resumed_run_ends_in_the_same_bits_as_an_uninterrupted_one(name: str, sampled: bool, tmp_path: Path) -> None:
    def strategy(**more: Any) -> CompressedStrategy:
        inner = DynamicSampling(INNER[name](**HALF | {"fraction_train": 0.9}), beta=0.15) if sampled else None
        return _strategy(inner or INNER[name](**HALF), **more)

    random.seed(4)
    whole, whole_grid = strategy(), LocalGrid(app(), 6)
    whole.start(whole_grid, model(), num_rounds=4)

    random.seed(4)
    grid = LocalGrid(app(), 6)
    strategy(checkpoint=Checkpoint(tmp_path / "checkpoint")).start(grid, model(), num_rounds=2)
    random.seed(99)  # another process has another random state
    second = strategy()
    second.load(tmp_path / "checkpoint")
    assert second.round == 2
    result = second.start(grid, second.arrays, num_rounds=2)

    np.testing.assert_array_equal(floats(second.arrays), floats(whole.arrays))
    assert list(result.train_metrics_clientapp) == [3, 4]
    # The message numbers of both runs start from random names, so they differ; the traffic is the same.
    for direction in ("uplink_bytes", "downlink_bytes", "catch_up_bytes"):
        assert getattr(second.ledger, direction) == getattr(whole.ledger, direction)
    for node, context in grid.contexts.items():
        mine, theirs = state_of(context), state_of(whole_grid.contexts[node])
        np.testing.assert_array_equal(mine.memory.get("residual", 0), theirs.memory.get("residual", 0))
    states = [_inner_state(each, tmp_path / "state") for each in (second, whole)]
    assert states[0].keys() == states[1].keys()
    for key, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][key], err_msg=key)
        assert array.dtype == states[1][key].dtype


class ServerEnds(Exception):
    """The server ends before the messages of a round leave."""


class Ending(LocalGrid):
    """Ends the server after some rounds."""

    rounds_left = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        if messages and messages[0].metadata.message_type == "train":
            self.rounds_left -= 1
            if self.rounds_left < 0:
                raise ServerEnds
        return super().push_messages(messages)


@pytest.mark.parametrize("compressor", ["auto()", "stc(density=0.05)"])
@pytest.mark.parametrize(("train", "evaluate"), [(0.5, 0.5), (0.5, 1.0), (1.0, 0.34)])
def test_a_resumed_run_continues_behind_an_evaluation_too(
    train: float, evaluate: float, compressor: str, tmp_path: Path
) -> None:
    """Evaluation draws nodes, sends them the version, and counts bytes: none of it is lost."""

    def strategy(**more: Any) -> CompressedStrategy:
        link = fedcomp.parse(compressor)
        return CompressedStrategy(
            FedAvg(fraction_train=train, fraction_evaluate=evaluate), uplink=link, downlink=link, **more
        )

    random.seed(4)
    whole, grid = strategy(), LocalGrid(app(), 8)
    grid.order(3, Fault.CRASH)
    whole.start(grid, model(), num_rounds=6)

    random.seed(4)
    grid = Ending(app(), 8)
    grid.order(3, Fault.CRASH)
    for grid.rounds_left in (2, 1, 6):
        part = strategy(checkpoint=Checkpoint(tmp_path / "checkpoint"))
        if (tmp_path / "checkpoint").exists():
            part.load(tmp_path / "checkpoint")
        with suppress(ServerEnds):
            part.start(grid, model(), num_rounds=6 - part.round)
        random.seed(99)  # another process has another random state
    np.testing.assert_array_equal(floats(part.arrays), floats(whole.arrays))
    for name in ("uplink_bytes", "downlink_bytes", "catch_up_bytes", "key_bytes", "refused"):
        assert getattr(part.ledger, name) == getattr(whole.ledger, name), name


def _inner_state(strategy: CompressedStrategy, path: Path) -> dict[str, np.ndarray]:
    strategy.save(path)
    return {name: array for name, array in read_archive(path).items() if name.startswith("inner/")}


def test_the_checkpoint_is_written_before_the_new_version_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    versions = []

    class Watched(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            messages = list(messages)
            if messages and path.exists():
                other = _strategy(INNER["FedAvg"](**HALF))
                other.load(path)
                versions.append((other.version, strategy.version))
            return super().send_and_receive(messages, timeout=timeout)

    strategy = _strategy(INNER["FedAvg"](**HALF), checkpoint=Checkpoint(path))
    strategy.start(Watched(app(), 4), model(), num_rounds=4)
    assert versions == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_checkpoint_of_every_second_version_writes_every_second_version(tmp_path: Path) -> None:
    strategy = _strategy(INNER["FedAvg"](**HALF), checkpoint=Checkpoint(tmp_path / "checkpoint", every=2))
    strategy.start(LocalGrid(app(), 4), model(), num_rounds=5)
    other = _strategy(INNER["FedAvg"](**HALF))
    other.load(tmp_path / "checkpoint")
    assert other.round == 4


def test_a_checkpoint_of_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    _strategy(FedAvg(), checkpoint=Checkpoint(path)).start(LocalGrid(app(), 4), model(), num_rounds=1)
    parts = read_archive(path)
    write_archive(path, parts | {"plain": to_json(from_json(parts["plain"]) | {"format": 2})})
    with pytest.raises(CorruptError, match="checkpoint format 2; this version reads format 3"):
        _strategy(FedAvg()).load(path)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "absent"])
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    strategy = _strategy(INNER["FedAdam"](**HALF), checkpoint=Checkpoint(path))
    strategy.start(LocalGrid(app(), 4), model(), num_rounds=2)
    data = path.read_bytes()
    at = data.index(b"FCMP") + 300
    damaged = {
        "cut": data[: len(data) // 2],
        "flip": data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :],
        "empty": b"",
        "text": b"hello",
    }
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    other = _strategy(INNER["FedAdam"](**HALF))
    with pytest.raises(CorruptError, match="checkpoint"):
        other.load(path)
    with pytest.raises(RuntimeError):
        _ = other.version
    assert isinstance(other.inner, FedAdam)
    assert other.inner.m_t is None


def test_saving_before_the_first_version_and_checkpoints_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _strategy(FedAvg()).save(tmp_path / "checkpoint")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="every is 0"):
        Checkpoint("state", every=0)
    with pytest.raises(ValueError, match="the path of a file is needed"):
        Checkpoint(3)  # type: ignore[arg-type]


def test_new_settings_hold_on_resume_and_values_that_the_strategy_changed_come_back(tmp_path: Path) -> None:
    class Decaying(FedAvg):
        def __init__(self, rate: float, **settings: float) -> None:
            super().__init__(**settings)  # type: ignore[arg-type]
            self.rate = rate
            self.rounds_seen = 0

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            self.rate *= 0.5
            self.rounds_seen += 1
            return super().aggregate_train(server_round, replies)

    first = _strategy(
        Decaying(1.0, fraction_train=1.0, fraction_evaluate=0.0), checkpoint=Checkpoint(tmp_path / "checkpoint")
    )
    first.start(LocalGrid(app(), 4), model(), num_rounds=3)
    inner = Decaying(1.0, fraction_train=0.5, fraction_evaluate=0.0)
    second = _strategy(inner)
    second.load(tmp_path / "checkpoint")
    assert (inner.rate, inner.rounds_seen) == (0.125, 3)
    assert inner.fraction_train == 0.5


def _saved_and_loaded(make: Callable[[], Strategy], path: Path) -> Strategy:
    """Return the inner strategy of a run that continues from the checkpoint of two rounds."""
    _strategy(make(), checkpoint=Checkpoint(path)).start(LocalGrid(app(), 3), model(), num_rounds=2)
    again = _strategy(make())
    again.load(path)
    assert again.round == 2
    return again.inner


class Lazy(FedAvg):
    """Makes its attributes when it needs them first, of which some are of types that no checkpoint holds."""

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        if not hasattr(self, "velocity"):
            self.velocity = {"layer/weight": np.zeros(3)}
            self.seen: dict[int, np.ndarray] = {}
            self.count, self.steps, self.norm = np.int64(0), [np.zeros(2)], np.float32(0)
            self.ragged = np.array([np.zeros(2), np.zeros(3)], dtype=object)
            self.ragged_by_name = {"layers": self.ragged}
            self.tensor = torch.zeros(3)
        self.velocity["layer/weight"] += server_round
        self.count, self.norm = self.count + 1, np.float32(0.5)
        self.by_node.update({reply.metadata.src_node_id: np.array([server_round]) for reply in replies})
        return super().aggregate_train(server_round, replies)

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.by_node: defaultdict[int, np.ndarray] = defaultdict(lambda: np.array([7]))


def test_attributes_that_a_strategy_makes_later_come_back(tmp_path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    inner = cast(Lazy, _saved_and_loaded(Lazy, tmp_path / "checkpoint"))
    assert inner.velocity["layer/weight"].tolist() == [3, 3, 3]
    assert (int(inner.count), float(inner.norm), len(inner.steps)) == (2, 0.5, 1)
    assert {node: array.tolist() for node, array in inner.by_node.items()} == {1: [2], 2: [2], 3: [2]}
    assert inner.by_node[99].tolist() == [7], "it is still a defaultdict"
    for name in ("ragged", "ragged_by_name", "tensor"):
        assert not hasattr(inner, name)
        assert f"the checkpoint leaves out {name} of Lazy" in flower_log.text


def test_they_come_back_in_a_wrapped_strategy_too(tmp_path: Path) -> None:
    wrapped = _saved_and_loaded(lambda: DynamicSampling(Lazy(), beta=0.0), tmp_path / "checkpoint")
    assert cast(Lazy, cast(DynamicSampling, wrapped).inner).velocity["layer/weight"].tolist() == [3, 3, 3]
    assert not hasattr(wrapped, "velocity")


class Emptying(FedAvg):
    """Sets attributes to None, and empties collections, that its constructor fills."""

    def __init__(self, note: str | None = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.warmup: int | None = 5
        self.queue, self.by_name = [np.ones(2)], {"a": np.ones(2)}
        self.pair: tuple[int, ...] = (1, 2)
        self.seen, self.last = {3}, deque([1.5])
        self.by_node = defaultdict(list, {1: [2.0]})
        self.rest, self.again = frozenset({4}), [np.ones(2)]
        self.metric: Callable[[], None] | None = lambda: None
        self.note, self.extra = note, [] if note is None else [note]

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        self.warmup = self.metric = None
        self.queue, self.by_name, self.pair, self.rest = [], {}, (), frozenset()
        for each in (self.seen, self.last, self.by_node):
            each.clear()
        self.again = [] if server_round == 1 else [np.full(2, 7.0)]
        self.made_later: list[np.ndarray] = []
        return super().aggregate_train(server_round, replies)


def test_what_the_run_set_to_none_or_emptied_comes_back_so(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture
) -> None:
    inner = cast(Emptying, _saved_and_loaded(Emptying, tmp_path / "checkpoint"))
    assert inner.warmup is None
    assert inner.metric is None
    assert [inner.queue, inner.by_name, inner.pair, inner.seen, inner.made_later] == [[], {}, (), set(), []]
    assert inner.last == deque(), "it is still a deque"
    assert not inner.by_node
    assert inner.by_node[9] == [], "it is still a defaultdict"
    assert inner.again[0].tolist() == [7, 7]
    assert inner.rest == {4}
    assert flower_log.text.rpartition("[ROUND 2/2]")[2].count("leaves out") == 1
    assert "leaves out rest of Emptying" in flower_log.text


def test_a_new_setting_in_place_of_nothing_holds_on_resume(tmp_path: Path) -> None:
    _strategy(Emptying(), checkpoint=Checkpoint(tmp_path / "checkpoint")).start(
        LocalGrid(app(), 3), model(), num_rounds=1
    )
    inner = Emptying("new")
    _strategy(inner).load(tmp_path / "checkpoint")
    assert (inner.note, inner.extra) == ("new", ["new"])


class Accountant:
    """Counts releases, as the accountant of a privacy budget does."""

    def __init__(self) -> None:
        self.releases = 0

    def state_dict(self) -> dict[str, Any]:
        return {"releases": self.releases, "history": [(1.5, 0.1, self.releases)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.releases = state["releases"]
        ((_, _, count),) = state["history"]
        assert count == self.releases


class Accounted(FedAvg):
    """Has an accountant, and an optimizer whose state JSON cannot hold."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.accountant = Accountant()
        self.optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], momentum=0.9)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        self.accountant.releases += 1
        self.optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
        self.optimizer.step()
        return super().aggregate_train(server_round, replies)


def test_a_privacy_budget_goes_on_where_it_was(tmp_path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    inner = cast(Accounted, _saved_and_loaded(Accounted, tmp_path / "checkpoint"))
    assert inner.accountant.releases == 2
    assert "leaves out optimizer of Accounted" in flower_log.text
    assert "leaves out accountant" not in flower_log.text
    flower_log.clear()
    without = _strategy(FedAvg(fraction_evaluate=0.0))
    without.load(tmp_path / "checkpoint")
    assert "the state of inner/accountant, and nothing is there to take it" in flower_log.text


def test_no_archive_holds_objects(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_archive(tmp_path / "state.npz", {"a": np.array([{}], object)})
    assert not list(tmp_path.iterdir())


def test_a_run_that_starts_anew_sets_the_checkpoint_of_a_trained_run_aside(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture
) -> None:
    path, aside = tmp_path / "checkpoint", tmp_path / "checkpoint.before"

    def start(rounds: int, *, load: bool = False) -> None:
        strategy = _strategy(FedAvg(fraction_evaluate=0.0), checkpoint=Checkpoint(path))
        if load:
            strategy.load(path)
        strategy.start(LocalGrid(app(), 3), model(), num_rounds=rounds)

    start(3)
    trained = [each.read_bytes() for each in (path, tmp_path / "checkpoint.traffic")]
    for _ in range(2):  # a server that is restarted again and again, and ends before its first round
        start(0)
        assert [each.read_bytes() for each in (aside, tmp_path / "checkpoint.before.traffic")] == trained
    assert flower_log.text.count("it is now checkpoint.before; load() continues") == 1
    again = _strategy(FedAvg())
    again.load(path)
    assert again.round == 0
    start(2, load=True)
    start(2, load=True)
    assert aside.read_bytes() == trained[0], "a run that loads its checkpoint replaces it"
    assert sorted(each.name for each in tmp_path.glob("*.before*")) == [
        "checkpoint.before",
        "checkpoint.before.traffic",
    ]
    start(1)
    assert aside.read_bytes() == trained[0]
    assert (tmp_path / "checkpoint.before-2").exists()
    path.write_bytes(b"something else")
    start(1)
    assert (tmp_path / "checkpoint.before-3").read_bytes() == b"something else"


def test_a_folder_in_place_of_a_checkpoint_is_refused_before_the_first_round(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    before = _strategy(FedAvg(), checkpoint=Checkpoint(tmp_path / "run"))
    before.start(LocalGrid(app(), 3), model(), num_rounds=1)
    for load in (False, True):
        strategy, grid = _strategy(FedAvg(), checkpoint=Checkpoint(tmp_path / "folder")), LocalGrid(app(), 3)
        if load:
            strategy.load(tmp_path / "run")
        text = f"the checkpoint {tmp_path / 'folder'} is a folder; the path of a file is needed"
        with pytest.raises(IsADirectoryError, match=re.escape(text) + "$"):
            strategy.start(grid, model(), num_rounds=1)
        assert not any(context.state for context in grid.contexts.values()), "no node has trained"
    with pytest.raises(IsADirectoryError, match="is a folder"):
        before.save(tmp_path / "folder")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "run", "run.traffic"]


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "make room, and continue from it"), (errno.EACCES, "continue from it")]
)
def test_only_a_full_disk_is_said_to_need_room(number: int, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.touch()
    text = f"cannot be written, and so no new checkpoint; the one before is whole: {advice}"
    with pytest.raises(OSError, match=re.escape(text) + "$"), explained(path):
        raise OSError(number, os.strerror(number), str(path))
