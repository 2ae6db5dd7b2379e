"""Measures of uneven partitions, by hand."""

import math

import numpy as np
import pytest

from fedcomp.data.spread import Spread, gini, hellinger, jensen_shannon, spread

BALANCED = np.repeat(np.arange(10), 6)


def test_equal_clients_of_balanced_classes_have_distance_zero() -> None:
    parts = [np.arange(start, 60, 6) for start in range(6)]
    found = spread(BALANCED, parts, 10)
    assert found.counts.tolist() == [[1] * 10] * 6
    assert found.jensen_shannon.max() == pytest.approx(0, abs=1e-7)
    assert found.hellinger.max() == pytest.approx(0, abs=1e-7)
    assert found.gini == 0
    assert found.classes.tolist() == [10] * 6
    assert found.unused == 0


def test_clients_of_one_class_in_ten_have_known_distances() -> None:
    found = spread(BALANCED, [np.arange(6 * code, 6 * code + 6) for code in range(10)], 10)
    # Halfway, the own class has 11/20 and each other one 1/20.
    own = math.log2(1 / 0.55)
    whole = 0.1 * math.log2(0.1 / 0.55) + 0.9 * math.log2(0.1 / 0.05)
    assert found.jensen_shannon == pytest.approx([math.sqrt((own + whole) / 2)] * 10)
    assert found.jensen_shannon[0] == pytest.approx(0.87079, abs=1e-5)
    assert found.hellinger == pytest.approx([math.sqrt(1 - math.sqrt(0.1))] * 10)
    assert found.classes.tolist() == [1] * 10


def test_distributions_without_a_common_class_have_distance_one() -> None:
    p, q = np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.25, 0.75])
    assert float(jensen_shannon(p, q)) == pytest.approx(1)
    assert float(hellinger(p, q)) == pytest.approx(1)


def test_distances_are_metrics_in_the_unit_interval() -> None:
    p, q, r = np.random.default_rng(6).dirichlet(np.full(5, 0.3), (3, 200))
    for distance in (jensen_shannon, hellinger):
        assert np.array_equal(distance(p, q), distance(q, p))
        assert distance(p, p).max() < 1e-7
        assert 0 <= distance(p, q).min() <= distance(p, q).max() <= 1
        assert (distance(p, r) <= distance(p, q) + distance(q, r) + 1e-12).all()


def test_gini_is_half_the_mean_difference_over_the_mean() -> None:
    assert gini(np.array([3, 1])) == pytest.approx(0.25)  # differences 0, 2, 2, 0: mean 1, half of it over 2
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(3 / 4)
    sizes = np.random.default_rng(7).integers(1, 100, 30)
    assert gini(sizes) == pytest.approx(np.abs(sizes[:, np.newaxis] - sizes).mean() / 2 / sizes.mean())


def test_sizes_and_unused_samples_are_counted() -> None:
    found = spread(np.array([0, 0, 1, 2, 2, 2]), [np.array([0, 2]), np.array([3])], 4)
    assert found.counts.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
    assert found.total.tolist() == [2, 1, 3, 0]
    assert found.sizes.tolist() == [2, 1]
    assert found.shares.tolist() == [[0.5, 0.5, 0, 0], [0, 0, 1, 0]]
    assert found.unused == 3


def test_distances_are_to_all_samples_including_the_unused() -> None:
    half = Spread(counts=np.array([[5, 0]]), total=np.array([5, 5]))
    assert half.hellinger == pytest.approx([math.sqrt(1 - math.sqrt(0.5))])


def test_distributions_that_are_equal_but_for_the_last_bit_have_distance_zero() -> None:
    p, q = np.array([0.4, 0.6]), np.array([np.nextafter(0.4, 0), 0.6])
    assert float(jensen_shannon(p, q)) == 0  # the sum is -3e-17
