"""Updates below the last bit of a weight: what the nodes ask for is what the model moves by, plus the server's residual."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedAvgM, FedTrimmedAvg, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, MajorityVote
from tests.flower.toy import Arrays, training

pytestmark = pytest.mark.one_flower

NODES, ROUNDS = 5, 20
ALL = {"fraction_evaluate": 0.0}


def nudging(step: float, *, everywhere: bool = False) -> ClientApp:
    """Return an app in which each node adds `step` to an entry of its own, or to all."""

    def nudge(given: Arrays, context: Context, _: int) -> Arrays:
        own = slice(None) if everywhere else int(str(context.node_config["partition-id"]))
        given["w"][own] += given["w"].dtype.type(step)
        return given

    return training(nudge)


def run(inner: Strategy, app: ClientApp, dtype: str, downlink: str, rounds: int = ROUNDS) -> CompressedStrategy:
    """Return the strategy after training a model of 12 weights of 0.75."""
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.parse(downlink))
    initial = ArrayRecord({"w": Array(np.full(12, 0.75, dtype))})
    strategy.start(LocalGrid(app, NODES), initial, num_rounds=rounds)
    return strategy


def moved_and_kept(strategy: CompressedStrategy) -> tuple[np.ndarray, np.ndarray]:
    """Return what the published vector has moved by, and the server's residual; both float64."""
    publisher = strategy.publisher
    moved = publisher.replica.vector.astype(np.float64) - 0.75
    return moved, publisher.memory.get("residual", np.zeros(12)).astype(np.float64)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("dtype", "step", "downlink"),
    [
        ("float16", 2.0**-11, "topk(density=1.0)"),
        ("float16", 2.0**-11, "topk(density=0.25)"),
        ("float16", 2.0**-11, "stc(density=0.25)"),
        ("float32", 2.0**-24, "stc(density=0.25)"),
        ("float32", 2.0**-10, "topk(density=0.25)"),
    ],
)
def test_the_asked_mass_is_the_movement_plus_the_residual(dtype: str, step: float, downlink: str) -> None:
    moved, kept = moved_and_kept(run(FedAvg(**ALL), nudging(step), dtype, downlink))  # type: ignore[arg-type]
    target = np.zeros(12)
    target[:NODES] = ROUNDS * step / NODES
    np.testing.assert_allclose(moved + kept, target, rtol=0, atol=2e-6 * target.max())


def test_a_float16_model_moves_by_updates_below_its_last_bit() -> None:
    strategy = run(FedAvg(**ALL), nudging(2.0**-11), "float16", "dense()")  # type: ignore[arg-type]
    assert strategy.arrays["w"].numpy().dtype == np.float16
    assert strategy.arrays["w"].numpy()[:NODES].tolist() == [0.75 + 4 * 2.0**-11] * NODES
    assert strategy.arrays["w"].numpy()[NODES:].tolist() == [0.75] * 7


@pytest.mark.parametrize(
    ("inner", "factor"),
    [
        (FedAvgM(server_learning_rate=0.125, **ALL), 0.125),  # type: ignore[arg-type]
        (FedTrimmedAvg(beta=0.2, **ALL), 1.0),  # type: ignore[arg-type]
    ],
)
def test_strategies_that_compute_with_the_replies_lose_nothing_either(inner: Strategy, factor: float) -> None:
    step = 2.0**-11
    moved, kept = moved_and_kept(run(inner, nudging(step, everywhere=True), "float16", "topk(density=0.5)", rounds=16))
    np.testing.assert_allclose(moved + kept, 16 * step * factor, rtol=1e-5)


def test_a_vote_moves_by_its_step_even_where_float16_does_not() -> None:
    inner = MajorityVote(step=2.0**-13, **ALL)
    moved, _ = moved_and_kept(run(inner, nudging(2.0**-11, everywhere=True), "float16", "dense()", rounds=8))
    np.testing.assert_allclose(moved, 8 * 2.0**-13, rtol=1e-6)


def test_equal_magnitudes_of_a_mean_are_published_in_the_order_of_their_indices() -> None:
    w = np.random.default_rng(0).standard_normal(4000).astype(np.float32)

    def step(given: Arrays, context: Context, _: int) -> Arrays:
        given["w"][::4] += np.float32(0.1)
        return given

    strategy = CompressedStrategy(
        FedAvg(**ALL),  # type: ignore[arg-type]
        uplink=fedcomp.stc(density=0.25),
        downlink=fedcomp.stc(density=0.05),
    )
    strategy.start(LocalGrid(training(step), 3), ArrayRecord({"w": Array(w)}), num_rounds=1)
    (changed,) = np.nonzero(strategy.publisher.replica.vector != w)
    assert changed.tolist() == list(range(0, 800, 4)), "the mean has 1000 equal entries; the first 200 are published"
