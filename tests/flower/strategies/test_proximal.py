import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdagrad
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, QcmdAdagrad, QrdaAdagrad
from fedcomp.flower.strategies.proximal import Center, shrink
from tests.flower.strategies.by_hand import one_round, record, values
from tests.flower.toy import Arrays, arrays_of, training

Kind = type[QcmdAdagrad] | type[QrdaAdagrad]
ALL: dict[str, Any] = {"fraction_train": 1.0, "fraction_evaluate": 0.0}


def test_shrinking_is_soft_thresholding_by_hand() -> None:
    shrunk = shrink(np.array([3.0, -3.0, 0.5, -0.5, 1.0, 0.0]), 1.0)
    np.testing.assert_array_equal(shrunk, [2, -2, 0, 0, 0, 0])
    assert not np.signbit(shrunk[2:]).any(), "no zero is negative"
    np.testing.assert_array_equal(shrink(np.array([3.0, -3.0]), np.array([0.0, 4.0])), [3, 0])


def test_shrinking_gives_the_minimiser() -> None:
    rng = np.random.default_rng(0)
    given, threshold = rng.standard_normal(200), rng.uniform(0, 1, 200)

    def objective(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.square(x - given) / 2 + threshold * np.abs(x)

    least = objective(shrink(given, threshold))
    for x in np.linspace(-4, 4, 801):
        assert (least <= objective(np.full(200, x)) + 1e-12).all()


def test_mirror_descent_by_hand() -> None:
    strategy = QcmdAdagrad(eta=0.5, delta=1, l1_strength=1)
    published = record({"weight": [[1.0, -0.5]], "bias": [1.0]})
    # g = (1, 0); H = (2, 1); u = (3/4, -1/2); the thresholds are 1/4 and 1/2
    model = one_round(strategy, published, [{"weight": [[0.0, -0.5]], "bias": [0.0]}])
    assert values(model) == [0.5, 0.0]
    assert values(model, "bias") == [0.75], "a bias is not penalized"
    # g = (root of 3, 0): s = 2, H = 3
    model = one_round(
        strategy,
        record({"weight": [[0.5, 0.0]], "bias": [0.75]}),
        [{"weight": [[0.5 - math.sqrt(3), 0.0]], "bias": [0.75]}],
    )
    assert values(model) == pytest.approx([0.5 - math.sqrt(3) / 6 - 1 / 6, 0.0])


@pytest.mark.parametrize(("center", "first", "second"), [("zero", [-0.125, 0], [0, -1 / 6]), ("initial", None, None)])
def test_dual_averaging_by_hand(center: Center, first: list[float] | None, second: list[float] | None) -> None:
    strategy = QrdaAdagrad(eta=0.5, delta=1, l1_strength=0.5, center=center)
    published = record({"weight": [[1.0, -0.5]], "bias": [1.0]})
    # g = (1, 0); H = (2, 1).  Around zero -(1/4) (1 - 1/2); around (1, -1/2): (3/4, -1/2) shrunk by (1/8, 1/4)
    model = one_round(strategy, published, [{"weight": [[0.0, -0.5]], "bias": [0.0]}])
    assert values(model) == (first or [0.625, -0.25])
    assert values(model, "bias") == [-0.25 if center == "zero" else 0.75], "a bias is not penalized"
    # g = (0, 2): the mean gradient is (1/2, 1), H = (2, 3), t = 2
    published = record({"weight": [[7.0, 8.0]], "bias": [9.0]})
    model = one_round(strategy, published, [{"weight": [[7.0, 6.0]], "bias": [9.0]}])
    # around (1, -1/2): (3/4, -5/6) shrunk by (1/4, 1/6)
    assert values(model) == pytest.approx(second or [0.5, -2 / 3])


@pytest.mark.parametrize("make", [QcmdAdagrad, QrdaAdagrad, lambda **settings: QrdaAdagrad(center="zero", **settings)])
def test_a_tensor_that_no_node_has_changed_keeps_its_bits_until_one_does(
    make: Callable[..., QcmdAdagrad | QrdaAdagrad],
) -> None:
    strategy, ones = make(eta=0.5, delta=1, l1_strength=0.25), np.ones((1, 2), np.float32)
    model = record({"frozen": [[0.3, -0.7]], "scale": [0.1], "weight": [[1.0, 0.5]]})
    for step in (0.0, 0.0, 0.5):
        sent = {"frozen": model["frozen"].numpy() + np.float32(step), "scale": model["scale"].numpy(), "weight": ones}
        stepped = one_round(strategy, model, [sent, sent])
        assert stepped is not None
        unchanged = [
            np.array_equal(stepped[name].numpy(), model[name].numpy()) for name in ("frozen", "scale", "weight")
        ]
        assert unchanged == [not step, True, False]
        model = stepped


def test_without_a_penalty_mirror_descent_is_flowers_fedadagrad() -> None:
    rng = np.random.default_rng(0)
    mine, theirs = QcmdAdagrad(eta=0.1, delta=1e-3, l1_strength=0), FedAdagrad(eta=0.1, tau=1e-3)
    published = rng.standard_normal((6, 5), np.float32)
    for server_round in range(1, 8):
        sent = [{"weight": published + np.float32(0.1) * rng.standard_normal((6, 5), np.float32)} for _ in range(3)]
        models = [one_round(strategy, record({"weight": published}), sent) for strategy in (mine, theirs)]
        np.testing.assert_allclose(values(models[0]), values(models[1]), atol=1e-5, err_msg=f"round {server_round}")
        published = np.array(values(models[0]), np.float32).reshape(6, 5)


def test_without_a_penalty_dual_averaging_is_the_sum_of_all_gradients() -> None:
    rng = np.random.default_rng(0)
    strategy = QrdaAdagrad(eta=0.1, delta=0.5, l1_strength=0)
    initial = rng.standard_normal((6, 5))
    published, total, squares = initial, np.zeros((6, 5)), np.zeros((6, 5))
    for _ in range(5):
        gradient = rng.standard_normal((6, 5))
        model = one_round(strategy, record({"weight": published}), [{"weight": published - gradient}])
        total, squares = total + gradient, squares + gradient**2
        published = np.array(values(model)).reshape(6, 5)
        np.testing.assert_allclose(published, initial - 0.1 * total / (0.5 + np.sqrt(squares)), rtol=1e-9)


@pytest.mark.parametrize("kind", [QcmdAdagrad, QrdaAdagrad])
def test_a_stronger_penalty_makes_more_entries_exactly_zero(kind: Kind) -> None:
    shares = []
    for l1_strength in (0.0, 0.05, 0.2, 0.8):
        rng = np.random.default_rng(0)
        strategy = kind(eta=0.01, delta=0.1, l1_strength=l1_strength)
        model = record({"weight": 0.1 * rng.standard_normal((40, 25)), "bias": np.zeros(40)})
        for _ in range(10):
            sent = [
                {name: array + 0.1 * rng.standard_normal(array.shape) for name, array in arrays_of(model).items()}
                for _ in range(3)
            ]
            stepped = one_round(strategy, model, sent)
            assert stepped is not None
            model = stepped
        shares.append(float(np.mean(model["weight"].numpy() == 0)))
        assert (model["bias"].numpy() != 0).all()
    assert shares[0] == 0
    assert shares == sorted(set(shares)), "more zeros at each strength"
    assert shares[-1] > 0.5


def _app(last_round: int) -> ClientApp:
    """Return an app whose nodes train random updates up to `last_round`, and then zero updates."""

    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        rng = np.random.default_rng([context.node_id, server_round])
        step = np.float32(0.1) * rng.standard_normal(given["weight"].shape, np.float32)
        return {"weight": given["weight"] + step * (server_round <= last_round)}

    return training(train)


@pytest.mark.parametrize("kind", [QcmdAdagrad, QrdaAdagrad])
def test_through_a_dense_downlink_the_zeros_reach_the_nodes_exactly(kind: Kind) -> None:
    random.seed(0)
    initial = record({"weight": np.float32(0.1) * np.random.default_rng(0).standard_normal((20, 30), np.float32)})
    inner = kind(eta=0.01, delta=0.1, l1_strength=0.4, **ALL)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.2), downlink=fedcomp.dense())
    grid = LocalGrid(_app(8), 4)
    published = strategy.start(grid, initial, num_rounds=8).arrays["weight"].numpy()
    assert np.mean(published == 0) > 0.1
    assert np.mean(published == 0) < 1


@pytest.mark.one_flower
def test_a_lossy_downlink_sends_no_part_of_a_dual_average_twice() -> None:
    # From round 6 the updates are zero and the dual average is constant, so the published model must converge to it.
    initial = record({"weight": np.random.default_rng(0).standard_normal((20, 30), np.float32)})
    inner = QrdaAdagrad(eta=0.1, delta=0.1, l1_strength=0, **ALL)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.stc(density=0.1))
    published = strategy.start(LocalGrid(_app(5), 4), initial, num_rounds=120).arrays["weight"].numpy()
    root = np.sqrt(inner.sum_of_squares["weight"])
    target = initial["weight"].numpy() - 0.1 * inner.sum_of_gradients["weight"] / (0.1 + root)
    assert np.abs(target - initial["weight"].numpy()).max() > 0.1
    np.testing.assert_allclose(published, target, atol=1e-3)


@pytest.mark.parametrize("kind", [QcmdAdagrad, QrdaAdagrad])
def test_ternary_updates_leave_what_no_node_moves_much_exactly_zero(kind: Kind) -> None:
    """Half of the entries start at zero and have gradients a tenth as large; random ternary values move them all."""

    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        rng = np.random.default_rng([context.node_id, server_round])
        step = rng.uniform(0.5, 1, (20, 30)) * rng.choice([-1, 1], (20, 30))
        step[:10] *= 0.1
        return {"weight": given["weight"] + step.astype(np.float32)}

    moved: dict[str, float] = {}
    for uplink in ("ternary()", "terngrad()"):
        random.seed(0)
        initial = record({"weight": np.zeros((20, 30), np.float32)})
        inner = kind(eta=0.01, delta=0.1, l1_strength=0.0, **ALL)
        strategy = CompressedStrategy(inner, uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
        published = strategy.start(LocalGrid(training(train), 4), initial, num_rounds=10).arrays["weight"].numpy()
        assert (published[10:] != 0).all()
        moved[uplink] = float(np.mean(published[:10] != 0))
    assert moved["ternary()"] == 0
    assert moved["terngrad()"] > 0.5
