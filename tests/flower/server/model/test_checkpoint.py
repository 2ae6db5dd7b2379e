"""The state of a server through a file and back."""

import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
