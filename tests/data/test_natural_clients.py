"""Natural clients: each has all samples of its writers."""

import numpy as np
import pytest

from fedcomp.data.natural_clients import natural_split


def test_with_one_client_for_each_writer_clients_are_writers() -> None:
    owners = np.array([7, 40, 7, 9, 40, 40])
    parts = natural_split(owners, 3, seed=0)
    assert sorted(part.tolist() for part in parts) == [[0, 2], [1, 4, 5], [3]]


def test_fewer_clients_have_several_writers_each_and_at_most_one_more_than_others() -> None:
    owners = np.random.default_rng(2).integers(0, 23, 500) * 10
    parts = natural_split(owners, 5, seed=1)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(500))
    held = [set(owners[part].tolist()) for part in parts]
    assert sorted(map(len, held)) == [4, 4, 5, 5, 5]
    assert sum(map(len, held)) == len(set.union(*held))


def test_the_seed_decides_which_client_has_which_writer() -> None:
    owners = np.arange(100) // 5
    first, again, other = (natural_split(owners, 4, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_more_clients_than_writers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 natural clients"):
        natural_split(np.array([1, 2, 2]), 3, seed=0)
