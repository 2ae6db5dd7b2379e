"""The split of the STC paper."""

import numpy as np
import pytest

from datasets import Dataset as Table
from fedcomp.data.stc_partitioner import StcPartitioner, stc_split, volumes


def test_volumes_by_hand() -> None:
    # alpha/N = 0.1/3; powers 1, 1/2, 1/4 sum to 7/4, so the shares of 0.9 are 4/7, 2/7, 1/7.
    assert volumes(3, gamma=0.5) == pytest.approx([1 / 30 + 3.6 / 7, 1 / 30 + 1.8 / 7, 1 / 30 + 0.9 / 7])
    assert volumes(4, gamma=1.0) == pytest.approx([0.25] * 4)


def test_volumes_sum_to_one_and_decrease() -> None:
    for gamma in (0.9, 0.95, 0.99):
        shares = volumes(100, gamma)
        assert shares.sum() == pytest.approx(1)
        assert (np.diff(shares) < 0).all()


def test_sizes_are_the_volumes_rounded_down() -> None:
    labels = np.repeat(np.arange(10), 100)
    parts = stc_split(labels, 3, classes=2, gamma=0.5, alpha=0.1, seed=0)
    assert [len(part) for part in parts] == [547, 290, 161]  # 547.6, 290.5, 161.9


def test_rounding_loses_no_sample_of_equal_volumes() -> None:
    for clients in (3, 7, 10, 49, 100, 300):
        labels = np.arange(clients * 20) % 10
        parts = stc_split(labels, clients, classes=2, gamma=1.0, alpha=0.1, seed=0)
        assert {len(part) for part in parts} == {20}


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


def test_it_is_a_partitioner_of_flwr_datasets() -> None:
    table = Table.from_dict({"index": np.arange(100), "digit": np.arange(100) % 5})
    partitioner = StcPartitioner(4, "digit", classes_per_partition=2, gamma=0.9, seed=3)
    partitioner.dataset = table
    want = stc_split(np.arange(100) % 5, 4, classes=2, gamma=0.9, alpha=0.1, seed=3)
    assert partitioner.num_partitions == 4
    assert [partitioner.load_partition(client)["index"][:] for client in range(4)] == [part.tolist() for part in want]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_partitions": 0}, "num_partitions is 0;"),
        ({"classes_per_partition": 0}, "classes_per_partition is 0;"),
        ({"gamma": 0.0}, "gamma is 0.0;"),
        ({"gamma": 1.01}, "gamma is 1.01;"),
        ({"alpha": 1.5}, "alpha is 1.5;"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        StcPartitioner(**({"num_partitions": 2, "partition_by": "y", "classes_per_partition": 1} | settings))  # type: ignore[arg-type]


def test_too_many_classes_and_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 classes .* 2"):
        stc_split(np.array([0, 1] * 5), 2, classes=3, gamma=1.0, alpha=0.1, seed=0)
    with pytest.raises(ValueError, match="client 2 .* 1 samples; 2 classes"):
        stc_split(np.array([0, 1] * 5), 3, classes=2, gamma=0.5, alpha=0.1, seed=0)
