"""A small share of the soak's trials of split learning; and that they find what is broken."""

import numpy as np
import pytest

from fedcomp.split import ActivationMemory, SplitServer, SplitState
from fedcomp.split.server import SplitNodeRecord
from tests.flower import soak

SEED = 20
"""Another seed than those of the long runs."""
KINDS = ("split",)


@pytest.mark.parametrize("first", [113, *(pytest.param(first, marks=pytest.mark.nightly) for first in (0, 100))])
def test_no_faults_break_a_law(first: int) -> None:
    """On a grid and not, in files and not, direct and not: the trials from 113 on are all of these, and short."""
    result = soak.soak(SEED, first, lambda result: result.trials == 4, KINDS)
    assert not result.broken, next(iter(result.broken.values()))
    assert len(result.faults) > 8
    assert 0 < result.seen["split on a grid"] < 4


@pytest.mark.nightly
def test_a_trial_is_the_same_on_every_run() -> None:
    first, second = (soak.soak(SEED, 3, lambda result: result.trials == 2, KINDS) for _ in range(2))
    assert list(first.lines()) == list(second.lines())


def broken() -> str:
    """Return the first law that is broken."""
    result = soak.soak(SEED, 0, lambda result: bool(result.broken) or result.trials == 15, KINDS)
    (text,) = result.broken.values()
    return text


def test_a_batch_that_counts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SplitServer.message

    def message(self: SplitServer, node: int) -> bytes:
        record: SplitNodeRecord = self.nodes[node]
        record.acked = type(record.acked)()  # the node thinks that its batch was not taken
        return whole(self, node)

    monkeypatch.setattr(SplitServer, "message", message)
    assert "Error" in broken()


def test_activations_that_one_end_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ActivationMemory.digest
    monkeypatch.setattr(ActivationMemory, "digest", lambda self, ids: whole(self, ids[:0]))
    assert "hold different activations" in broken()


def test_random_numbers_that_are_not_the_same_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = iter(range(1, 1_000_000))

    class Drifting(SplitState):
        """A state whose weights move whenever it is copied."""

        def __deepcopy__(self, memo: dict[int, object]) -> "Drifting":
            weights = {name: array + np.float32(1e-6 * next(visits)) for name, array in self.weights.items()}
            return Drifting(self.memory, self.training_id, self.number, self.round_number, weights=weights)

    monkeypatch.setattr("tests.split.pair.SplitState", Drifting)
    assert "Error" in broken()
