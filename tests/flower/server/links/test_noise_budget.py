"""The noise that compression adds to the model, and how far the model moves, as the server measures them."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.flower.server.links.noise_budget import MAX_NOISE, MIN_NOISE, SKETCH, NoiseBudget, sketch


def normal(n: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(n, np.float32)


def walked(rounds: int, *, step: float = 1.0, noise: float = 0.0, norm: float = 1.0, n: int = 20_000) -> NoiseBudget:
    """Return the budget after rounds of the same change, each of squared norm `step`**2, and noise of squared norm `noise`."""
    direction, model = normal(n) / np.sqrt(n), np.zeros(n, np.float32)
    budget = NoiseBudget(first=sketch(model).tolist())
    for number in range(rounds):
        model += step * direction + np.sqrt(noise / n) * normal(n, number + 1)
        budget.add(sketch(model), noise=noise, norm=norm, step=step**2)
    return budget


@pytest.mark.parametrize("n", [1, SKETCH - 1, SKETCH + 1, 3 * BLOCK_ENTRIES + 5])
def test_a_sketch_is_linear_and_keeps_norms(n: int) -> None:
    x, y = normal(n), normal(n, 1)
    np.testing.assert_allclose(sketch(x + y), sketch(x) + sketch(y), atol=1e-4)
    norms = [
        np.sum(sketch(normal(n, seed)) ** 2) / np.sum(normal(n, seed).astype(np.float64) ** 2) for seed in range(9)
    ]
    assert np.mean(norms) == pytest.approx(1, rel=0.06)


def test_a_sketch_keeps_the_norm_of_a_vector_that_repeats_itself() -> None:
    """Without signs of its own for each place, the rows of a matrix would add up or cancel."""
    repeated = np.tile(normal(SKETCH), 100)
    assert np.sum(sketch(repeated) ** 2) == pytest.approx(np.sum(repeated.astype(np.float64) ** 2), rel=0.25)


def test_the_displacement_is_the_distance_without_the_noise() -> None:
    alone, noisy = walked(40), walked(40, noise=10.0)
    assert alone.displacement == pytest.approx(40**2, rel=0.1)
    assert noisy.displacement == pytest.approx(40**2, rel=0.15), "the noise moves the model by another 400"
    assert noisy.noise == pytest.approx(400)


def test_nothing_is_known_before_the_first_round() -> None:
    assert NoiseBudget().share(10, 1.0) == 0


def test_more_displacement_and_less_noise_so_far_allow_more_noise() -> None:
    def share(**changes: float) -> float:
        values = {"noise": 5.0, "displacement": 100.0, "growth": 2.0, "norm": 10.0, "step": 1.0} | changes
        return NoiseBudget([0.0] * SKETCH, rounds=20, **values).share(50, 1.0)

    assert MIN_NOISE < share() < MAX_NOISE
    assert share(displacement=120.0) > share() > share(noise=20.0)
    assert share(growth=3.0) > share() > share(norm=11.0)
    assert share(growth=-3.0) == share(growth=0.0), "a model that comes back is not expected to go on so"
    budget = NoiseBudget([0.0] * SKETCH, 5.0, 100.0, 2.0, 10.0, 1.0, 20)
    assert budget.share(50, 1.0) > budget.share(50, 0.5), "a shorter run may have less"
    assert budget.share(50, 0.001) == MIN_NOISE
    assert budget.share(50, 1e6) == MAX_NOISE


def test_the_noise_that_is_left_is_spread_over_the_rounds_to_come_and_a_reserve() -> None:
    """By hand: the displacement will be 100 + 50 * 2, so 200 - 5 are left for 50 rounds and a tenth of 70, of 10 each."""
    budget = NoiseBudget([0.0] * SKETCH, noise=5.0, displacement=100.0, growth=2.0, norm=10.0, step=1.0, rounds=20)
    assert budget.share(50, 1.0) == pytest.approx(195 / 57 / 10)


def test_what_is_measured_is_a_mean_over_some_rounds() -> None:
    budget = NoiseBudget([0.0] * SKETCH)
    here = np.zeros(SKETCH)
    here[0] = 1.0
    budget.add(here, noise=0.0, norm=4.0, step=2.0)
    assert (budget.norm, budget.step, budget.displacement, budget.growth) == (4.0, 2.0, 1.0, 1.0)
    budget.add(here, noise=0.0, norm=8.0, step=4.0)
    assert (budget.norm, budget.step) == pytest.approx((0.7 * 4 + 0.3 * 8, 0.7 * 2 + 0.3 * 4))
    assert budget.growth == pytest.approx(0.5), "the mean of two rounds"
    for _ in range(20):
        budget.add(here, noise=0.0, norm=8.0, step=4.0)
    assert 0.01 < budget.growth < 0.1


@pytest.mark.parametrize("most", [0.3, 1.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_run_ends_with_the_noise_that_it_may_have(most: float, power: float) -> None:
    """However the displacement grows: like that of a random walk that slows down, of a random walk, or of a straight line."""
    rounds, norm, n = 100, 1.0, 20_000
    direction, spread = normal(n) / np.linalg.norm(normal(n)), np.zeros(n)
    budget = NoiseBudget(first=sketch(np.zeros(n, np.float32)).tolist())
    for number in range(1, rounds + 1):
        noise = budget.share(rounds - number + 1, most) * norm or 0.1
        spread += np.sqrt(noise / n) * normal(n, number)
        model = (10 * (number / rounds) ** (power / 2) * direction + spread).astype(np.float32)
        budget.add(sketch(model), noise=noise, norm=norm, step=norm)
    assert 0.6 * most < budget.noise / 10**2 < 1.2 * most


@pytest.mark.parametrize(
    "damage",
    [{"first": [0.0]}, {"first": [float("nan")] * SKETCH}, {"noise": -1.0}, {"displacement": float("inf")}, {"norm": -1.0},
     {"growth": float("nan")}, {"rounds": 0}, {"step": "x"}],
)  # fmt: skip
def test_damage_is_refused(damage: dict[str, object]) -> None:
    good = {
        "first": [0.0] * SKETCH,
        "noise": 1.0,
        "displacement": 1.0,
        "growth": 1.0,
        "norm": 1.0,
        "step": 1.0,
        "rounds": 3,
    }
    NoiseBudget(**good).check()  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        NoiseBudget(**good | damage).check()  # type: ignore[arg-type]
