"""The noise that compression adds to the model, and how far the model moves, as the server measures them."""

import numpy as np
import pytest

from fedcomp.core import Vector
from fedcomp.flower.server.links.noise_budget import MAX_NOISE, MIN_NOISE, NoiseBudget
from fedcomp.flower.server.links.sketch import SKETCH, Sketch, Sketcher


def normal(n: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(n, np.float32)


def sketch(vector: Vector) -> Sketch:
    """Return the sketch of a vector that is one tensor."""
    return Sketcher(((slice(0, vector.size),),)).sketch(vector)


def walked(rounds: int, *, step: float = 1.0, noise: float = 0.0, norm: float = 1.0, n: int = 20_000) -> NoiseBudget:
    """Return the budget after rounds of the same change, each of squared norm `step`**2, and noise of squared norm `noise`."""
    direction, model = normal(n) / np.sqrt(n), np.zeros(n, np.float32)
    budget = NoiseBudget(first=sketch(model).tolist())
    for number in range(rounds):
        change = step * direction + np.sqrt(noise / n) * normal(n, number + 1)
        model += change
        budget.add(sketch(model), sketch(change), noise=noise, norm=norm, averaged=5.0)
    return budget


def test_the_displacement_is_the_distance_without_the_noise() -> None:
    alone, noisy = walked(40), walked(40, noise=10.0)
    assert alone.displacement == pytest.approx(40**2, rel=0.1)
    assert noisy.displacement == pytest.approx(40**2, rel=0.15), "the noise moves the model by another 400"
    assert noisy.noise == pytest.approx(400)


def test_nothing_is_known_before_the_first_round() -> None:
    assert NoiseBudget().share(10, 1.0) == 0


def test_more_displacement_and_less_noise_so_far_allow_more_noise() -> None:
    def share(**changes: float) -> float:
        values = {"noise": 5.0, "displacement": 100.0, "growth": 2.0, "norm": 10.0} | changes
        return NoiseBudget([0.0] * SKETCH, [0.0] * SKETCH, rounds=20, **values).share(50, 1.0)

    assert MIN_NOISE < share() < MAX_NOISE
    assert share(displacement=120.0) > share() > share(noise=20.0)
    assert share(growth=3.0) > share() > share(norm=11.0)
    assert share(growth=-3.0) == share(growth=0.0), "a model that comes back is not expected to go on so"
    budget = NoiseBudget([0.0] * SKETCH, noise=5.0, displacement=100.0, growth=2.0, norm=10.0, rounds=20)
    assert budget.share(50, 1.0) > budget.share(50, 0.5), "a shorter run may have less"
    assert budget.share(50, 0.001) == MIN_NOISE
    assert budget.share(50, 1e6) == MAX_NOISE


@pytest.mark.parametrize(("sampling", "expected"), [(-1.0, 0.1), (0.5, 0.1), (10.0, 1.5), (1e6, MAX_NOISE)])
def test_noise_may_be_as_large_as_the_sampling_noise_times_a_factor(sampling: float, expected: float) -> None:
    budget = NoiseBudget([0.0] * SKETCH, noise=43.0, displacement=100.0, norm=10.0, sampling=sampling, rounds=20)
    assert budget.share(50, 1.0) == pytest.approx(0.1)
    assert budget.share(50, 1.0, 1.5) == pytest.approx(expected)


def test_the_noise_that_is_left_is_spread_over_the_rounds_to_come_and_a_reserve() -> None:
    """By hand: with the power 0.4 of the rounds, 100 becomes 100 * 3.5**0.4; all but 5 is left for 50 rounds and 7 more."""
    budget = NoiseBudget([0.0] * SKETCH, noise=5.0, displacement=100.0, growth=2.0, norm=10.0, rounds=20)
    assert budget.share(50, 1.0) == pytest.approx((100 * 3.5**0.4 - 5) / 57 / 10)
    assert budget.share(50, 1.0, power=0.3) == pytest.approx((100 * 3.5**0.3 - 5) / 57 / 10)
    budget.growth = 9.0
    assert budget.share(50, 1.0) == pytest.approx((100 * 3.5 - 5) / 57 / 10), "at most a straight line"


def test_a_run_of_thousands_of_rounds_does_not_make_up_for_noise_that_it_has_not_had() -> None:
    """By hand: all but 5 of 1000 is left for 100 rounds and 100 more; a round of 1,001 has a 1,101.1th of 1000 at most.

    Otherwise noise grew towards the end, and with it the displacement: 5,000 rounds of logistic regression lost 0.8 points.
    """
    budget = NoiseBudget([0.0] * SKETCH, noise=5.0, displacement=1000.0, norm=10.0, rounds=900)
    assert budget.share(100, 1.0) == pytest.approx(995 / 200 / 10)
    assert budget.share(101, 1.0) == pytest.approx(1000 / 1101.1 / 10)
    assert budget.share(101, 1.0, 1.5) == budget.share(101, 1.0), "no sampling noise is known"
    budget.sampling = 5.0
    assert budget.share(101, 1.0, 1.5) == pytest.approx(0.75), "the sampling noise counts, however long the run"
    budget.noise = 900.0
    assert budget.share(101, 1.0) == pytest.approx(100 / 201.1 / 10), "what is left is less"


@pytest.mark.parametrize(("rounds", "most"), [(1000, 3.0), (1001, 3.0 / 1.001), (2000, 1.5), (6000, 0.5)])
def test_a_longer_run_has_no_more_noise_than_a_thousand_rounds_may_have(rounds: int, most: float) -> None:
    budget = NoiseBudget([0.0] * SKETCH, displacement=1e9, norm=10.0, rounds=20)
    assert budget.share(rounds - 20, 1.0) == pytest.approx(most)


def test_what_is_measured_is_a_mean_over_some_rounds() -> None:
    budget = NoiseBudget([0.0] * SKETCH)
    here = np.zeros(SKETCH)
    here[0] = 1.0
    budget.add(here, here, noise=0.0, norm=4.0, averaged=2.0, unpublished=0.3)
    assert (budget.norm, budget.step, budget.displacement, budget.growth) == (4.0, 1.0, 1.0, 1.0)
    assert budget.unpublished == 0.3
    budget.add(here, 2 * here, noise=0.0, norm=8.0, averaged=2.0)
    assert (budget.norm, budget.step) == pytest.approx((0.7 * 4 + 0.3 * 8, 0.7 * 1 + 0.3 * 4))
    assert budget.growth == pytest.approx(0.5), "the mean of two rounds"
    assert budget.unpublished == 0
    for _ in range(20):
        budget.add(here, here, noise=0.0, norm=8.0, averaged=2.0)
    assert 0.01 < budget.growth < 0.1


def test_rounds_without_a_known_norm_do_not_count_in_the_mean() -> None:
    budget, here = NoiseBudget([0.0] * SKETCH), np.ones(SKETCH)
    for norm in (0.0, 0.0, 8.0):
        budget.add(here, here, noise=0.0, norm=norm, averaged=2.0)
    assert budget.norm == 8


@pytest.mark.parametrize("noise", [0.0, 10.0])
@pytest.mark.parametrize(("spread", "expected"), [(0.0, 0.0), (0.1, 0.1), (9.0, 0.4)])
def test_the_sampling_noise_is_half_of_what_two_changes_differ_by(noise: float, spread: float, expected: float) -> None:
    """Without the noise of compression, and at most that of independent updates, here five of squared norm 2."""
    n, budget = 20_000, NoiseBudget([0.0] * SKETCH)
    for number in range(60):
        change = normal(n) / np.sqrt(n) + np.sqrt((noise + spread) / n) * normal(n, number + 1)
        budget.add(sketch(normal(n)), sketch(change), noise=noise, norm=2.0, averaged=5.0)
    assert budget.sampling == pytest.approx(expected, abs=0.02 if not noise else 0.3)


@pytest.mark.parametrize("most", [0.3, 1.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_run_ends_with_the_noise_that_it_may_have(most: float, power: float) -> None:
    """However the displacement grows: like that of a random walk that slows down, of a random walk, or of a straight line."""
    rounds, norm, n = 100, 1.0, 20_000
    direction, spread = normal(n) / np.linalg.norm(normal(n)), np.zeros(n)
    model = np.zeros(n, np.float32)
    budget = NoiseBudget(first=sketch(model).tolist())
    for number in range(1, rounds + 1):
        noise = budget.share(rounds - number + 1, most) * norm or 0.1
        spread += np.sqrt(noise / n) * normal(n, number)
        before, model = model, (10 * (number / rounds) ** (power / 2) * direction + spread).astype(np.float32)
        budget.add(sketch(model), sketch(model - before), noise=noise, norm=norm, averaged=10.0)
    assert 0.6 * most < budget.noise / 10**2 < 1.2 * most


@pytest.mark.parametrize(
    "damage",
    [{"first": [0.0]}, {"first": [float("nan")] * SKETCH}, {"noise": -1.0}, {"displacement": float("inf")}, {"norm": -1.0},
     {"growth": float("nan")}, {"rounds": 0}, {"step": "x"}, {"last": [0.0]}, {"sampling": float("inf")},
     {"unpublished": float("nan")}, {"unpublished": 4.1}],
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
