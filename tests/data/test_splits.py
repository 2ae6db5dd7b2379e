"""Splits by the owners of samples, and as in the STC paper."""

import numpy as np
import pytest

from fedcomp.data.splits import natural_split, stc_split, stc_volumes


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


def test_volumes_by_hand() -> None:
    # alpha/N = 0.1/3; powers 1, 1/2, 1/4 sum to 7/4, so the shares of 0.9 are 4/7, 2/7, 1/7.
    assert stc_volumes(3, gamma=0.5) == pytest.approx([1 / 30 + 3.6 / 7, 1 / 30 + 1.8 / 7, 1 / 30 + 0.9 / 7])
    assert stc_volumes(4, gamma=1.0) == pytest.approx([0.25] * 4)


def test_volumes_sum_to_one_and_decrease() -> None:
    for gamma in (0.9, 0.95, 0.99):
        shares = stc_volumes(100, gamma)
        assert shares.sum() == pytest.approx(1)
        assert (np.diff(shares) < 0).all()


def test_sizes_are_the_volumes_rounded_down() -> None:
    labels = np.repeat(np.arange(10), 100)
    parts = stc_split(labels, 3, classes=2, gamma=0.5, alpha=0.1, seed=0)
    assert [len(part) for part in parts] == [547, 290, 161]  # 547.6, 290.5, 161.9


def test_rounding_loses_no_sample_of_equal_stc_volumes() -> None:
    for clients in (5, 10, 91, 99):  # the volumes of these, times the samples, are a rounding error below 60
        labels = np.arange(clients * 60) % 10
        parts = stc_split(labels, clients, classes=2, gamma=1.0, alpha=0.1, seed=0)
        assert {len(part) for part in parts} == {60}


def test_a_partition_has_equal_parts_of_consecutive_classes() -> None:
    labels = np.repeat(np.arange(10), 1000)
    for part in stc_split(labels, 10, classes=3, gamma=1.0, alpha=0.1, seed=4)[-2:]:  # the last ones are filled first
        counts = np.bincount(labels[part], minlength=10)
        assert sorted(counts[counts > 0].tolist()) == [333, 333, 334]
        start = next(code for code in range(10) if counts[code] and not counts[code - 1])
        assert all(counts[(start + step) % 10] for step in range(3))


def test_an_empty_class_is_skipped() -> None:
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    for seed in range(20):
        parts = stc_split(labels, 4, classes=1, gamma=1.0, alpha=0.1, seed=seed)
        assert sorted(np.concatenate(parts).tolist()) == list(range(8))
        assert all(len(np.unique(labels[part])) == 1 for part in parts)


def test_the_next_class_replaces_missing_samples() -> None:
    labels = np.array([0, 1, 1, 1, 1, 1])
    (only,) = stc_split(labels, 1, classes=1, gamma=1.0, alpha=0.1, seed=0)
    assert only.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("classes", [1, 2, 5, 10])
def test_most_partitions_have_the_given_number_of_classes(classes: int) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 10_000)
    for gamma in (0.9, 1.0):
        parts = stc_split(labels, 50, classes=classes, gamma=gamma, alpha=0.1, seed=classes)
        held = np.array([len(np.unique(labels[part])) for part in parts])
        assert (held == classes).mean() >= 0.75
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


def test_too_many_classes_and_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 classes .* 2"):
        stc_split(np.array([0, 1] * 5), 2, classes=3, gamma=1.0, alpha=0.1, seed=0)
    with pytest.raises(ValueError, match="client 2 .* 1 samples; 2 classes"):
        stc_split(np.array([0, 1] * 5), 3, classes=2, gamma=0.5, alpha=0.1, seed=0)
