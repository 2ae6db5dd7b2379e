"""The origin of a replica's steps in checkpoints and in nodes' states: it comes back to the bit, or is found out."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.core import Arrays, octets, read_archive, write_archive
from fedcomp.errors import CorruptError
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.client.context_store import KEY
from fedcomp.flower.client.stored_array import STYPE
from tests.flower.toy import app, model, state_of

NODES = 3


def run(rounds: int = 4) -> tuple[CompressedStrategy, LocalGrid]:
    stc = fedcomp.stc(density=0.05)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=stc, downlink=stc)
    grid = LocalGrid(app(), NODES)
    strategy.start(grid, model(), num_rounds=rounds)
    return strategy, grid


def test_a_checkpoint_brings_the_origin_back(tmp_path: Path) -> None:
    strategy, _ = run()
    strategy.save(tmp_path / "state")
    resumed = CompressedStrategy(FedAvg())
    resumed.load(tmp_path / "state")
    before, after = strategy.publisher.replica, resumed.publisher.replica
    assert before.origin is not None
    assert after.origin is not None
    assert after.origin.base.place == before.origin.base.place
    assert np.array_equal(after.origin.counts, before.origin.counts)
    assert np.array_equal(after.origin.base.vector, before.origin.base.vector)
    assert before.origin.base.version == 0


def other_counts(parts: Arrays) -> Arrays:
    parts["counts"][17] += 1 << 20
    return parts


DAMAGE: dict[str, Callable[[Arrays], Arrays]] = {
    "other counts": other_counts,
    "fewer counts": lambda parts: parts | {"counts": parts["counts"][:-1]},
    "counts of another type": lambda parts: parts | {"counts": parts["counts"].astype(np.int64)},
    "no counts": lambda parts: {name: array for name, array in parts.items() if name != "counts"},
    "another origin": lambda parts: parts | {"origin": parts["replica"]},
    "no frame": lambda parts: parts | {"origin": octets(b"FCMP")},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_checkpoint_whose_origin_does_not_fit_is_refused(damage: Callable[[Arrays], Arrays], tmp_path: Path) -> None:
    run()[0].save(tmp_path / "state")
    write_archive(tmp_path / "damaged", damage(read_archive(tmp_path / "state")))
    with pytest.raises(CorruptError, match="damaged is not a valid checkpoint"):
        CompressedStrategy(FedAvg()).load(tmp_path / "damaged")


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_a_node_whose_counts_are_of_another_type_starts_again_and_is_served(dtype: type[np.generic]) -> None:
    strategy, grid = run()
    context = grid.contexts[1]
    arrays = dict(context.state.array_records[KEY])
    counts = np.frombuffer(arrays["counts"].data, np.int32).astype(dtype)
    arrays["counts"] = Array(str(counts.dtype), counts.shape, STYPE, counts.tobytes())
    context.state[KEY] = ArrayRecord(arrays)
    strategy.inner.fraction_train = 1.0  # type: ignore[attr-defined]
    strategy.start(grid, strategy.arrays, num_rounds=3)
    assert strategy.ledger.by_node()[1].refused == 1, "it asked for a key frame once"
    replicas = [state_of(context).held for context in grid.contexts.values()]
    assert len({replica.vector.tobytes() for replica in replicas}) == 1
