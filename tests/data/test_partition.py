"""Partitions: the laws that every scheme keeps, what each promises, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import read_card
from fedcomp.data.load import load
from fedcomp.data.partition import SCHEMES, partition, partition_train

CARDS = Path(__file__).parents[2] / "datasets"

COVERING = ["iid()", "dirichlet(alpha=0.5)", "classes(2)", "shards(None, 50, True)", "linear()", "square()", "stc(10)"]
ALL = [*COVERING, "exponential", "shards()", "shards(shards_per_client=3)", "stc(classes=2, gamma=0.95)"]


@pytest.fixture(scope="module")
def labels() -> NDArray[np.int64]:
    """Two thousand labels of ten classes, about as many of each."""
    return np.random.default_rng(11).integers(0, 10, 2000)


def test_every_scheme_is_tried_here() -> None:
    assert {spec.partition("(")[0] for spec in ALL} == set(SCHEMES)


@pytest.mark.parametrize("spec", ALL)
def test_parts_are_sorted_disjoint_and_none_is_empty(spec: str, labels: NDArray[np.int64]) -> None:
    num_partitions = 5 if spec == "exponential" else 10
    parts = partition(spec, labels, num_partitions, seed=1)
    assert len(parts) == num_partitions
    taken = np.concatenate(parts)
    assert len(np.unique(taken)) == len(taken)
    assert 0 <= taken.min() <= taken.max() < len(labels)
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()


@pytest.mark.parametrize("spec", COVERING)
def test_every_sample_is_somewhere(spec: str, labels: NDArray[np.int64]) -> None:
    assert np.array_equal(np.sort(np.concatenate(partition(spec, labels, 10, seed=2))), np.arange(2000))


@pytest.mark.parametrize("spec", ALL)
def test_the_seed_and_nothing_else_decides(spec: str, labels: NDArray[np.int64]) -> None:
    first, again, other = (partition(spec, labels, 5, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_parts_are_equal_and_hold_every_class(labels: NDArray[np.int64]) -> None:
    parts = partition("iid", labels, 7, seed=0)
    assert {len(part) for part in parts} == {285, 286}
    assert all(len(np.unique(labels[part])) == 10 for part in parts)


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_classes_gives_exactly_so_many(labels: NDArray[np.int64], count: int) -> None:
    parts = partition(f"classes({count})", labels, 20, seed=0)
    assert {len(np.unique(labels[part])) for part in parts} == {count}


def test_a_small_alpha_is_more_skewed_than_a_large_one(labels: NDArray[np.int64]) -> None:
    def largest_share(spec: str) -> float:
        parts = partition(spec, labels, 10, seed=0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert largest_share("dirichlet(0.1)") > 2 * largest_share("dirichlet(100.0)")


def test_dirichlet_keeps_to_the_least_size(labels: NDArray[np.int64]) -> None:
    assert min(map(len, partition("dirichlet(alpha=0.5, min_size=60)", labels, 10, seed=0))) >= 60


def test_shards_are_equal_blocks_of_the_sorted_labels() -> None:
    labels = np.repeat([3, 1, 2, 0], 25)
    parts = partition("shards(1)", labels, 4, seed=0)
    assert sorted(part.tolist() for part in parts) == [list(range(at, at + 25)) for at in (0, 25, 50, 75)]


def test_quantities_follow_the_number_of_the_client(labels: NDArray[np.int64]) -> None:
    assert [len(part) for part in partition("linear", labels[:1000], 4, seed=0)] == [100, 200, 300, 400]
    assert [len(part) for part in partition("square", labels[:1400], 3, seed=0)] == [100, 400, 900]
    sizes = [len(part) for part in partition("exponential", labels, 3, seed=0)]
    assert sizes == [180, 489, 1331]  # e, e^2, e^3 of their sum: 180.06, 489.46, 1330.48; the rest goes to the last


def test_labels_need_not_start_at_zero() -> None:
    labels = np.repeat([7, 40, 90], 10)
    for spec in ("classes(2)", "stc(2)", "dirichlet(1.0)", "shards(2)"):
        parts = partition(spec, labels, 3, seed=0)
        assert sum(map(len, parts)) == 30


def test_a_process_keeps_the_parts_of_a_dataset() -> None:
    dataset = load(read_card("digits", CARDS))
    parts = partition_train(dataset, "dirichlet(0.3)", 10, 5)
    assert partition_train(dataset, "dirichlet(0.3)", 10, 5) is parts
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, partition("dirichlet(0.3)", dataset.train.y, 10, 5), strict=True)
    )
    with pytest.raises(ValueError, match="read-only"):
        parts[0][0] = 1


@pytest.mark.parametrize(
    ("spec", "clients", "says"),
    [
        ("iid", 0, "0 clients and seed 0; at least 1 client"),
        ("iid", 2001, "2000 samples; at least 1 for each client, 2001, are needed"),
        ("even()", 10, "unknown partition scheme 'even'; there are: classes, dirichlet"),
        ("iid(", 10, "is not of the form"),
        ("iid(3)", 10, "takes 0 positional arguments"),
        ("dirichlet()", 10, "missing 1 required positional argument: 'alpha'"),
        ("dirichlet(alpha=0)", 10, "alpha is 0; above 0 is needed"),
        ("dirichlet(alpha=-0.5)", 10, "alpha is -0.5; above 0"),
        ("dirichlet(alpha=1e999)", 10, "alpha is inf; a number"),
        ("dirichlet(alpha='x')", 10, "alpha is 'x'; a number"),
        ("dirichlet(1.0, min_size=201)", 10, "2000 samples; at least 201 for each client, 2010, are needed"),
        ("dirichlet(0.01, min_size=190)", 10, "attempts"),
        ("classes(11)", 10, "11 classes a client; the labels have 10"),
        ("classes(0)", 10, "count is 0; a whole number, at least 1"),
        ("classes(2.0)", 10, "count is 2.0; a whole number"),
        ("classes(10)", 1000, "needed to be assigned to more partitions"),
        ("shards(300)", 10, "2000 samples; at least 300 for each client, 3000"),
        ("shards(2, 101)", 10, "2000 samples; at least 202 for each client, 2020"),
        ("shards(None)", 10, "neither shards_per_client nor shard_size"),
        ("shards(None, 500)", 10, "2000 samples; at least 500 for each client"),
        ("linear", 2000, "not greater than 0"),
        ("exponential", 1000, "not greater than 0"),
        ("stc(11)", 10, "11 classes a client; the labels have 10"),
        ("stc(2, gamma=0)", 10, "gamma is 0; above 0 and at most 1"),
        ("stc(2, gamma=1.1)", 10, "gamma is 1.1; above 0 and at most 1"),
        ("stc(2, alpha=-1)", 10, "alpha is -1; at least 0 and at most 1"),
        ("stc(5, gamma=0.5)", 100, "client .* would get 2 samples; 5 classes need as many"),
    ],
)
def test_what_cannot_be_met_is_one_sentence(spec: str, clients: int, says: str, labels: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        partition(spec, labels, clients, seed=0)
    assert "\n" not in str(caught.value)


def test_labels_are_a_vector_of_whole_numbers(labels: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match=r"labels of shape \(1000, 2\) and dtype int64"):
        partition("iid", labels.reshape(-1, 2), 10, seed=0)
    with pytest.raises(ValueError, match="dtype float64; whole numbers"):
        partition("iid", labels.astype(float), 10, seed=0)
