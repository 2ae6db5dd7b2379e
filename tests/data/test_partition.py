"""Partitions: the laws of every scheme, the promise of each, and refusals."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr_datasets.partitioner import DirichletPartitioner
from numpy.typing import NDArray

from datasets import Dataset as Table
from fedcomp.data.card import read_card
from fedcomp.data.dataset import Arrays, Dataset, checked_split
from fedcomp.data.dirichlet import dirichlet_split
from fedcomp.data.load import load
from fedcomp.data.partition import partition, partition_train
from fedcomp.data.schemes import SCHEMES
from tests.data.tiny import make_card

CARDS = Path(__file__).parents[2] / "datasets"

COVERING = [
    "iid()",
    "dirichlet(alpha=0.5)",
    "inner_dirichlet(0.5)",
    "classes(2)",
    "shards(None, 50, True)",
    "linear()",
    "square()",
    "quantity(0.5)",
    "skewed(0.6)",
    'natural("writer")',
    "stc(10)",
]
ALL = [*COVERING, "exponential", "shards()", "shards(shards_per_client=3)", "sizes", "stc(classes=2, gamma=0.95)"]


def cut(spec: str, labels: NDArray[np.int64], num_clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the partition of labels whose writers have seven samples each; ``sizes`` takes half of the samples."""
    if spec == "sizes":
        spec = f"sizes({[max(1, len(labels) // (2 * num_clients))] * num_clients})"
    return partition(spec, labels, num_clients, seed, {"writer": np.arange(len(labels)) // 7})


@pytest.fixture(scope="module")
def labels() -> NDArray[np.int64]:
    """Two thousand labels of ten classes, about as many of each."""
    return np.random.default_rng(11).integers(0, 10, 2000)


def test_every_scheme_is_in_these_tests_and_has_a_golden_digest() -> None:
    for specs in (ALL, GOLDEN):
        assert {spec.partition("(")[0] for spec in specs} == set(SCHEMES) - {"own"}


@pytest.mark.parametrize("spec", ALL)
def test_parts_are_sorted_and_disjoint_and_none_is_empty_and_most_schemes_use_every_sample(
    spec: str, labels: NDArray[np.int64]
) -> None:
    num_partitions = 5 if spec == "exponential" else 10
    parts = cut(spec, labels, num_partitions, seed=1)
    assert len(parts) == num_partitions
    indices = np.unique(np.concatenate(parts))
    assert len(indices) == sum(map(len, parts))
    assert len(indices) == len(labels) or spec not in COVERING
    assert set(indices.tolist()) <= set(range(len(labels)))
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()


@pytest.mark.sample(6)
@pytest.mark.parametrize("spec", ALL)
def test_only_the_seed_decides(spec: str, labels: NDArray[np.int64]) -> None:
    first, again, other = (cut(spec, labels, 5, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_parts_are_equal_and_hold_every_class(labels: NDArray[np.int64]) -> None:
    parts = partition("iid", labels, 7, seed=0)
    assert {len(part) for part in parts} == {285, 286}
    assert all(len(np.unique(labels[part])) == 10 for part in parts)


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_classes_gives_exactly_that_number(labels: NDArray[np.int64], count: int) -> None:
    parts = partition(f"classes({count})", labels, 20, seed=0)
    assert {len(np.unique(labels[part])) for part in parts} == {count}


def test_a_small_alpha_is_more_skewed_than_a_large_one(labels: NDArray[np.int64]) -> None:
    def largest_share(spec: str) -> float:
        parts = partition(spec, labels, 10, seed=0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert largest_share("dirichlet(0.1)") > 2 * largest_share("dirichlet(100.0)")


def test_dirichlet_keeps_the_least_size(labels: NDArray[np.int64]) -> None:
    assert min(map(len, partition("dirichlet(alpha=0.5, min_size=60)", labels, 10, seed=0))) >= 60


@pytest.mark.parametrize("seed", range(6))
def test_dirichlet_draws_until_it_fits(seed: int) -> None:
    """A hundred clients on the digits with alpha 0.1, the textbook's: one of them draws 300 times."""
    digits = load(read_card("digits", CARDS)).train.y
    parts = partition("dirichlet(0.1)", digits, 100, seed)
    assert min(map(len, parts)) >= 1
    assert sum(map(len, parts)) == len(digits)


@pytest.mark.parametrize(("alpha", "clients", "least"), [(0.1, 7, 1), (0.5, 10, 20), (1e-300, 3, 1), (1e4, 30, 50)])
def test_dirichlet_gives_the_split_of_flwr_datasets_where_that_finds_one(
    alpha: float, clients: int, least: int, labels: NDArray[np.int64]
) -> None:
    reference = DirichletPartitioner(clients, "label", alpha, min_partition_size=least, seed=4)
    reference.dataset = Table.from_dict({"label": labels, "index": np.arange(len(labels))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of each draw that did not fit
        expected = [np.sort(reference.load_partition(client)["index"][:]) for client in range(clients)]
    found = [np.sort(part) for part in dirichlet_split(labels, clients, alpha, least, seed=4)]
    assert all(np.array_equal(part, other) for part, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("text", ["dirichlet({})", "inner_dirichlet({})", "quantity({})"])
def test_the_largest_alphas_give_even_shares(text: str, labels: NDArray[np.int64]) -> None:
    """Of the sum of such numbers, there is no float."""
    for alpha, clients in (("1e308", 3), ("1.7e308", 7), (f"1{'0' * 308}", 10)):
        sizes = [len(part) for part in partition(text.format(alpha), labels, clients, seed=2)]
        assert sum(sizes) == 2000
        assert max(sizes) - min(sizes) <= 10, "each of ten classes is rounded"


def test_inner_dirichlet_sizes_are_equal_and_classes_are_not(labels: NDArray[np.int64]) -> None:
    largest = []
    for alpha in (0.1, 100.0):
        parts = partition(f"inner_dirichlet({alpha})", labels[:1003], 10, seed=0)
        assert [len(part) for part in parts] == [101] * 3 + [100] * 7
        largest.append(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))
    assert largest[0] > 2 * largest[1]


def test_quantity_skews_only_the_sizes(labels: NDArray[np.int64]) -> None:
    labels = np.tile(labels, 10)
    parts = partition("quantity(0.5)", labels, 10, seed=0)
    sizes = np.array([len(part) for part in parts])
    assert sizes.sum() == 20_000
    assert sizes.max() > 10 * sizes.min()
    large = parts[int(sizes.argmax())]
    assert np.abs(np.bincount(labels[large]) / len(large) - np.bincount(labels) / 20_000).max() < 0.02


def test_a_greater_alpha_evens_the_quantities(labels: NDArray[np.int64]) -> None:
    assert np.std([len(part) for part in partition("quantity(1e6)", labels, 10, seed=0)]) < 1
    assert min(len(part) for part in partition("quantity(1e-6, min_size=7)", labels, 100, seed=0)) == 7


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_a_share_of_the_samples_is_dealt_class_by_class(labels: NDArray[np.int64], share: float) -> None:
    """Ten clients and ten classes of about 200: a client has most of its sorted samples of one class, and all else."""
    parts = partition(f"skewed({share})", labels, 10, seed=0)
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    largest = np.mean([np.bincount(labels[part]).max() / len(part) for part in parts])
    assert abs(largest - (0.95 * share + 0.1 * (1 - share))) < 0.06


@pytest.mark.parametrize(
    ("spec", "samples", "sizes"),
    [
        ("sizes([5, 1, 300])", 2000, [5, 1, 300]),
        ("linear", 1000, [100, 200, 300, 400]),
        ("square", 1400, [100, 400, 900]),
        ("exponential", 2000, [180, 489, 1331]),  # e, e^2, e^3 of their sum: 180.06, 489.46; the rest goes to the last
    ],
)
def test_sizes_are_as_given_or_follow_the_number_of_the_client(
    spec: str, samples: int, sizes: list[int], labels: NDArray[np.int64]
) -> None:
    assert [len(part) for part in partition(spec, labels[:samples], len(sizes), seed=0)] == sizes


def test_shards_are_equal_blocks_of_the_sorted_labels() -> None:
    labels = np.repeat([3, 1, 2, 0], 25)
    parts = partition("shards(1)", labels, 4, seed=0)
    assert sorted(part.tolist() for part in parts) == [list(range(at, at + 25)) for at in (0, 25, 50, 75)]


def test_an_incomplete_shard_that_is_kept_can_be_all_that_a_client_has() -> None:
    labels = np.repeat([0, 1], [31, 15])
    parts = partition("shards(None, 10, True)", labels, 5, seed=0)
    assert sorted(map(len, parts)) == [6, 10, 10, 10, 10]
    with pytest.raises(ValueError, match="46 samples; 1 shards of 10 samples for each client are needed"):
        partition("shards(None, 10, True)", labels, 6, seed=0)


@pytest.mark.parametrize(
    "owners", [np.zeros(11, int), np.zeros(9, int), np.linspace(0, 3, 10), np.array(list("ab") * 5)]
)
def test_columns_of_another_length_or_kind_are_refused(owners: Any) -> None:
    with pytest.raises(ValueError, match=rf"writer of shape .*{len(owners)}.* dtype {owners.dtype}; .* \(10,\) are"):
        partition("natural('writer')", np.zeros(10, int), 1, seed=0, groups={"writer": owners})


def test_labels_need_not_start_at_zero() -> None:
    labels = np.repeat([7, 40, 90], 10)
    for spec in ("classes(2)", "stc(2)", "dirichlet(1.0)", "inner_dirichlet(1.0)", "shards(2)"):
        parts = partition(spec, labels, 3, seed=0)
        assert sum(map(len, parts)) == 30


def test_the_partition_of_a_dataset_is_cached() -> None:
    dataset = load(read_card("digits", CARDS))
    parts = partition_train(dataset, "dirichlet(0.3)", 10, 5)
    assert partition_train(dataset, "dirichlet(0.3)", 10, 5) is parts
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, partition("dirichlet(0.3)", dataset.train.y, 10, 5), strict=True)
    )
    with pytest.raises(ValueError, match="read-only"):
        parts[0][0] = 1


@pytest.mark.sample(22)
@pytest.mark.parametrize(
    ("spec", "clients", "named"),
    [
        ("iid()", 0, "0 clients"),
        ("iid()", 2001, "2000 samples.*2001"),
        ("even()", 10, "'even'.*classes, dirichlet"),
        ("iid(3)", 10, "argument"),
        ("dirichlet()", 10, "'alpha'"),
        ("dirichlet(alpha=0)", 10, "alpha is 0;"),
        ("dirichlet(alpha=-0.5)", 10, "alpha is -0.5;"),
        ("dirichlet(alpha=1e999)", 10, "alpha is inf;"),
        ("dirichlet(alpha='x')", 10, "alpha is 'x';"),
        ("dirichlet(1.0, min_size=201)", 10, "2000 samples.* 201 .*2010"),
        (
            "dirichlet(0.5, min_size=190)",
            10,
            r"min_size is 190.* best of 10000 draws with alpha 0\.5 and seed 0, .* has \d+ samples; a smaller",
        ),
        (
            "dirichlet(1e-9)",
            20,
            r"alpha is 1e-09, .* 10000 draws with seed 0 and min_size 1, one of 20 clients .*; a larger alpha",
        ),
        ("classes(11)", 10, "11 classes.* 10$"),
        ("classes(0)", 10, "count is 0;"),
        ("classes(2.0)", 10, "count is 2.0;"),
        ("classes(10)", 1000, "count is 10, and more clients draw a class than it has samples; fewer clients"),
        ("shards(300)", 10, "2000 samples.* 300 .*3000"),
        ("shards(2, 101)", 10, "2000 samples.* 202 .*2020"),
        ("shards(None)", 10, "shards_per_client"),
        ("shards(None, 500)", 10, "2000 samples.* 500 "),
        ("shards(2, 5, 'yes')", 10, "keep_incomplete_shard is 'yes';"),
        ("linear", 2000, "2000 clients"),
        ("linear", 64, "2000 samples are too few: .* proportion to its number.*; fewer clients"),
        ("square", 20, "2000 samples are too few: .* proportion to the square.*; fewer clients"),
        ("exponential", 12, "2000 samples are too few: .* proportion to the exponential.*; fewer clients"),
        ("exponential", 1000, "1000 clients"),
        ("inner_dirichlet(0)", 10, "alpha is 0;"),
        ("inner_dirichlet(1e-9)", 10, "larger alpha"),
        ("quantity(-1)", 10, "alpha is -1;"),
        ("quantity(1, min_size=201)", 10, "2000 samples.* 201 .*2010"),
        ("skewed(1.1)", 10, "share is 1.1;"),
        ("skewed(-0.1)", 10, "share is -0.1;"),
        ("sizes([])", 10, r"each is \[\];"),
        ("sizes([1, 0])", 2, "a size is 0;"),
        ("sizes([1, 2])", 3, "2 sizes.* 3,"),
        ("sizes([1500, 501])", 2, "2000 samples.* 2001"),
        ("natural(3)", 10, "column is 3;"),
        ("natural('writer')", 10, "'writer'.*none"),
        ("stc(11)", 10, "11 classes.* 10$"),
        ("stc(2, gamma=0)", 10, "gamma is 0;"),
        ("stc(2, gamma=1.1)", 10, "gamma is 1.1;"),
        ("stc(2, alpha=-1)", 10, "alpha is -1;"),
        ("stc(5, gamma=0.5)", 100, "client .* 2 samples; 5 classes"),
        ("own()", 10, r"own\(\) for 10 clients"),
    ],
)
def test_settings_that_the_samples_do_not_fit_are_refused_in_one_sentence(
    spec: str, clients: int, named: str, labels: NDArray[np.int64]
) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        partition(spec, labels, clients, seed=0)
    assert "\n" not in str(caught.value)


def test_a_feature_skew_does_not_change_the_indices(labels: NDArray[np.int64]) -> None:
    plain, noisy = (partition(text, labels, 10, seed=3) for text in ("classes(2)", "classes(2) + noise(0.1)"))
    assert all(np.array_equal(a, b) for a, b in zip(plain, noisy, strict=True))


def test_only_images_can_be_rotated() -> None:
    features = make_card(shape=(6,))
    split = checked_split(features, Arrays(np.zeros((4, 6), np.uint8), np.array([0, 1, 2, 0])), "here")
    dataset = Dataset(features, split, split)
    assert len(partition_train(dataset, "iid + noise(0.1)", 2, 0)) == 2
    with pytest.raises(ValueError, match=r"\[6\]"):
        partition_train(dataset, "iid + rotation(10)", 2, 0)


GOLDEN = {
    "iid()": "8611a50ed022bc28",
    "dirichlet(0.3)": "0a37e5190f73c405",
    "inner_dirichlet(0.3)": "734d6dc19a35f7a5",
    "classes(2)": "a150e7f8c039d533",
    "shards(2)": "356290c3f725ebb5",
    "linear()": "31cb6666c67bb218",
    "square()": "9fa09c38d4c82e0a",
    "exponential()": "2114840bd8f482fb",
    "sizes": "9137cdc4f04913a4",
    "quantity(0.5)": "5ee487f6581d4a1d",
    "skewed(0.8)": "879145e45c504c84",
    'natural("writer")': "d2e369cef5b0cef5",
    "stc(2, gamma=0.95)": "3d25c9f6106026ec",
}
"""First digits of the SHA-256 of sizes and indices, client by client: the same on every machine and in every release."""


@pytest.mark.parametrize(("spec", "digest"), GOLDEN.items())
def test_the_same_seed_gives_the_same_partition_everywhere(spec: str, digest: str) -> None:
    labels = np.arange(2000) * 7919 % 2003 % 10
    parts = cut(spec, labels, 5 if spec == "exponential()" else 10, seed=1)
    data = b"".join(np.array([len(part), *part], "<i8").tobytes() for part in parts)
    assert hashlib.sha256(data).hexdigest()[:16] == digest


FEW = [[], [5], [0, 0], [0, 1], [3, 3, 9], [0] * 7, [0, 0, 0, 0, 1], [7, 40, 90, 90], [-3, 4, -3], [0] * 30 + [1]]
EDGES = [
    *ALL,
    "dirichlet(1e-300)",
    "dirichlet(1e300)",
    "inner_dirichlet(1e-300)",
    "classes(1)",
    "shards(1)",
    "shards(2, 1, True)",
    "quantity(1e-300)",
    "quantity(1e300)",
    "skewed(0)",
    "skewed(1)",
    "stc(1, gamma=1e-300)",
]


@pytest.mark.sample(41)
@pytest.mark.parametrize("spec", EDGES)
@pytest.mark.parametrize("few", FEW, ids=str)
def test_few_samples_give_a_partition_or_one_sentence(spec: str, few: list[int]) -> None:
    labels = np.array(few, np.int64)
    for num_clients in (1, 3, 40):
        parts, refusal = [], ""
        try:
            parts = cut(spec, labels, num_clients, seed=1)
        except ValueError as error:
            refusal = str(error)
        if refusal:
            assert f" for {num_clients} clients: " in refusal
            assert "\n" not in refusal
            continue
        indices = np.concatenate(parts)
        assert len(parts) == num_clients
        assert min(map(len, parts)) > 0
        assert len(np.unique(indices)) == len(indices)
        assert set(indices.tolist()) <= set(range(len(labels)))


def test_labels_must_be_a_vector_of_whole_numbers(labels: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match=r"labels of shape \(1000, 2\) and dtype int64"):
        partition("iid", labels.reshape(-1, 2), 10, seed=0)
    with pytest.raises(ValueError, match="dtype float64"):
        partition("iid", labels.astype(float), 10, seed=0)
