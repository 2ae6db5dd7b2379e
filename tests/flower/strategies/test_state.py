"""The strategies' state: checkpoints of earlier versions still restore it, and damage is refused."""

from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.errors import CorruptError
from fedcomp.flower import EF21, CompressedStrategy, DynamicSampling, FedAMS, MajorityVote, QrdaAdagrad
from fedcomp.flower.strategies.state import StatefulStrategy, StateValue

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"


def test_a_checkpoint_of_an_earlier_version_restores_the_estimate_of_ef21() -> None:
    """Nodes 1 to 3 each sent the update (0.25, -0.5, 1, 0) times their number: the increments sum to six times that."""
    inner = EF21()
    strategy = CompressedStrategy(inner, uplink=fedcomp.parse("ef21(density=1.0)"))
    strategy.load(CHECKPOINTS / "ef21.npz")
    assert inner.num_nodes == 3
    np.testing.assert_allclose(inner.estimate["weight"], np.array([[1.5, -3], [6, 0]]), rtol=1e-7)
    assert inner.estimate["weight"].dtype == np.float64


def test_a_checkpoint_of_an_earlier_version_restores_a_strategy_inside_dynamic_sampling() -> None:
    """Two rounds of the mean update (0.5, -1, 2, 0), whose gradient is its negative, from the model 1, 2, 3, 4."""
    inner = QrdaAdagrad()
    CompressedStrategy(DynamicSampling(inner, beta=0.1)).load(CHECKPOINTS / "qrda_in_dynamic_sampling.npz")
    assert inner.num_gradients == 2
    np.testing.assert_allclose(inner.sum_of_gradients["weight"], np.array([[-1.0, 2], [-4, 0]]), rtol=1e-7)
    np.testing.assert_allclose(inner.sum_of_squares["weight"], np.array([[0.5, 2], [8, 0]]), rtol=1e-6)
    assert inner.initial["weight"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("strategy", [EF21(), FedAMS(), MajorityVote(), QrdaAdagrad()], ids=lambda s: type(s).__name__)
def test_a_state_without_entries_is_that_of_a_new_strategy(strategy: StatefulStrategy) -> None:
    new = strategy.state()
    strategy.restore({})
    assert strategy.state() == new


@pytest.mark.parametrize(
    ("strategy", "name", "value"),
    [
        (EF21(), "estimate", 7850),
        (EF21(), "num_nodes", -7850),
        (EF21(), "num_nodes", {}),
        (FedAMS(), "v_hat", 7850),
        (QrdaAdagrad(), "num_gradients", -7850),
    ],
)
def test_a_state_of_the_wrong_kind_is_refused_by_name(strategy: StatefulStrategy, name: str, value: StateValue) -> None:
    with pytest.raises(CorruptError, match=name):
        strategy.restore({name: value})


def test_a_strategy_that_does_not_name_its_state_cannot_be_saved() -> None:
    class Forgetful(FedAvg, StatefulStrategy):
        pass

    with pytest.raises(AttributeError, match="saved"):
        Forgetful().state()
