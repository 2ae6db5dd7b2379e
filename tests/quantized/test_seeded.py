"""Kept entries at positions drawn from a seed."""

import numpy as np
import pytest

from fedcomp.core import RandomStream
from fedcomp.quantized import Seeded, seeded_indices


def by_hand() -> Seeded:
    # the first raw words of seed 77 are, modulo 200, 185, 107, 27 and 95
    return Seeded(200, 77, seeded_indices(200, 4, 77), np.array([1.5, -0.75, -1.25, 3], np.float32))


def test_the_positions_are_those_of_the_seed() -> None:
    assert seeded_indices(200, 4, 77).tolist() == [27, 95, 107, 185]
    assert np.array_equal(seeded_indices(1000, 30, 5), RandomStream(5).subset(1000, 30))


def test_a_seed_is_taken_modulo_2_to_the_64() -> None:
    for seed, same in ((2**64 + 77, 77), (-1, 2**64 - 1)):
        assert np.array_equal(seeded_indices(200, 4, seed), seeded_indices(200, 4, same))


def test_values_are_in_the_order_of_their_positions() -> None:
    sparse = by_hand().sparse()
    assert sparse.n == 200
    assert dict(zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True)) == {
        27: 1.5,
        95: -0.75,
        107: -1.25,
        185: 3,
    }
    dense = by_hand().dense()
    assert dense.dtype == np.float32
    assert dense.shape == (200,)
    assert np.count_nonzero(dense) == 4
    assert dense[107] == -1.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kept_entries_are_added_in_place(dtype: type[np.floating]) -> None:
    vector = np.ones(200, dtype)
    by_hand().add_to(vector, 2.0)
    assert np.array_equal(vector, 1 + 2 * by_hand().dense().astype(dtype))
