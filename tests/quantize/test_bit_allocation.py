"""Bits for each layer: by hand, against all possible choices, and never worse than uniform bits."""

import itertools

import numpy as np
import pytest

from fedcomp.quantize.cgx import allocate, least_tolerance, rounding_error


def total(bits: list[int], entries: list[int]) -> int:
    return sum(each * size for each, size in zip(bits, entries, strict=True))


def error(bits: list[int], squares: list[float]) -> float:
    return sum(rounding_error(square, each) for each, square in zip(bits, squares, strict=True))


def layers(rng: np.random.Generator, count: int) -> tuple[list[int], list[float]]:
    entries = (10 ** rng.uniform(3, 6, count)).astype(int)
    return entries.tolist(), (entries * 10 ** rng.uniform(-4, 2, count)).tolist()


def test_the_error_of_levels_a_unit_apart_is_a_twelfth_an_entry() -> None:
    assert rounding_error(15**2 / 12, 4) == pytest.approx(1 / 12)
    # and that is what rounding does to entries spread evenly
    values = np.random.default_rng(0).uniform(0, 15, 100_000)
    assert np.square(np.rint(values) - values).mean() == pytest.approx(1 / 12, rel=0.02)


def test_equal_layers_get_the_uniform_bits() -> None:
    for bits in range(2, 9):
        assert allocate([1000] * 5, [3.0] * 5, bits, 1.0) == [bits] * 5


def test_layers_without_error_get_the_fewest_bits() -> None:
    assert allocate([1000, 1000], [0.0, 5.0], 4, 1.0) == [2, 4]
    assert allocate([10, 1000], [0.0, 0.0], 8, 1.0) == [2, 2]
    assert allocate([], [], 4, 1.0) == []


def test_bits_move_from_the_insensitive_layer_to_the_sensitive_one() -> None:
    # The first has a hundred times the error of the second for the same bits and entries.
    sensitive, insensitive = allocate([1000, 1000], [100.0, 1.0], 4, 1.0)
    assert sensitive > insensitive
    assert sensitive + insensitive < 8


def test_a_step_that_does_not_fit_leaves_no_more_bits_than_the_uniform_choice() -> None:
    # Lowering the small layer first leaves the large one, which the error then just does not allow down to 4.
    for seed in range(300):
        rng = np.random.default_rng(seed)
        entries, squares = layers(rng, int(rng.integers(1, 12)))
        for bits in range(2, 9):
            chosen = allocate(entries, squares, bits, 1.0)
            assert total(chosen, entries) <= total([bits] * len(entries), entries)
            assert error(chosen, squares) <= error([bits] * len(entries), squares) * (1 + 1e-12)
            assert set(chosen) <= set(range(2, 9))


@pytest.mark.parametrize("tolerance", [0.5, 1.0, 2.0])
def test_three_layers_take_at_most_a_step_of_the_largest_more_than_the_best_of_all_choices(tolerance: float) -> None:
    # The greedy choice is the best one but for the step that did not fit, as of a linear program with convex errors.
    over = []
    for seed in range(150):
        entries, squares = layers(np.random.default_rng(seed), 3)
        allowed = tolerance * error([4] * 3, squares)
        fits = (c for c in map(list, itertools.product(range(2, 9), repeat=3)) if error(c, squares) <= allowed)
        best = min(total(choice, entries) for choice in fits)
        found = allocate(entries, squares, 4, tolerance)
        assert error(found, squares) <= allowed * (1 + 1e-12)
        assert best <= total(found, entries) <= best + max(entries)
        over.append(total(found, entries) / best)
    assert np.mean(over) < 1.01
    assert max(over) < 1.2


def test_more_error_allowed_never_takes_more_bits_and_less_may_take_all_eight() -> None:
    entries, squares = layers(np.random.default_rng(9), 50)
    totals = [total(allocate(entries, squares, 4, tolerance), entries) for tolerance in (1e-6, 0.1, 1, 2, 10, 1e6)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == 8 * sum(entries)
    assert totals[-1] == 2 * sum(entries)


def test_ten_thousand_layers_are_fast() -> None:
    entries, squares = layers(np.random.default_rng(10), 10_000)
    chosen = allocate(entries, squares, 4, 1.0)
    assert total(chosen, entries) < 3.5 * sum(entries)
    assert error(chosen, squares) > 0.999 * error([4] * 10_000, squares)


def test_the_least_tolerance_is_that_of_eight_bits_everywhere() -> None:
    assert least_tolerance(8) == 1
    assert least_tolerance(4) == pytest.approx((15 / 255) ** 2)
    entries, squares = layers(np.random.default_rng(11), 20)
    for bits in range(2, 9):
        allowed = least_tolerance(bits) * error([bits] * 20, squares)
        assert error([8] * 20, squares) == pytest.approx(allowed)
        assert allocate(entries, squares, bits, 0.99 * least_tolerance(bits)) == [8] * 20
