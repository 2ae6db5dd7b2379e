"""Which client holds which samples: ``dirichlet(alpha=0.1)`` and the like -> index arrays.

The schemes are flwr-datasets' own partitioners, and one of ours in their form.  Samples are shuffled before, as
``FederatedDataset`` does, so that every scheme depends on the seed; the same seed gives the same split everywhere.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcomp.call import build
from fedcomp.data.dataset import Dataset

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Scheme = Callable[[NDArray[np.int64], int, int], "Partitioner"]
"""(labels, num_partitions, seed) -> the partitioner, or `ValueError` where they do not fit."""

LABEL = "label"
INDEX = "index"


def iid() -> Scheme:
    """Equal parts, drawn at random; sizes differ by at most one."""

    def scheme(_labels: NDArray[np.int64], num_partitions: int, _seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import IidPartitioner

        return IidPartitioner(num_partitions)

    return scheme


def dirichlet(alpha: float, min_size: int = 1) -> Scheme:
    """Each class shared out by Dirichlet(alpha), redrawn until each client has `min_size`.  Yurochkin et al., 2019."""
    _check_number("alpha", alpha, above=0)
    _check_count("min_size", min_size)

    def scheme(labels: NDArray[np.int64], num_partitions: int, seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import DirichletPartitioner

        _check_enough(labels, num_partitions, min_size)
        return DirichletPartitioner(num_partitions, LABEL, float(alpha), min_partition_size=min_size, seed=seed)

    return scheme


def classes(count: int) -> Scheme:
    """Exactly `count` classes a client, the first by turns and the rest at random.  Li et al., arXiv 2102.02079.

    With fewer clients than classes, the samples of a class that no client drew stay unused.
    """
    _check_count("count", count)

    def scheme(labels: NDArray[np.int64], num_partitions: int, seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import PathologicalPartitioner

        _check_classes(labels, count)
        return PathologicalPartitioner(num_partitions, LABEL, count, "first-deterministic", seed=seed)

    return scheme


def shards(
    shards_per_client: int | None = 2, shard_size: int | None = None, keep_incomplete_shard: bool = False
) -> Scheme:
    """Samples sorted by class and cut into shards, a few for each client.  McMahan et al., 2017.

    What fills no whole shard, and shards beyond those asked for, stay unused; ``shards(None, 300, True)`` uses all.
    """
    for name, value in (("shards_per_client", shards_per_client), ("shard_size", shard_size)):
        if value is not None:
            _check_count(name, value)
    if shards_per_client is None and shard_size is None:
        raise ValueError("neither shards_per_client nor shard_size; one of them is needed")

    def scheme(labels: NDArray[np.int64], num_partitions: int, seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import ShardPartitioner

        _check_enough(labels, num_partitions, (shards_per_client or 1) * (shard_size or 1))
        return ShardPartitioner(num_partitions, LABEL, shards_per_client, shard_size, keep_incomplete_shard, seed=seed)

    return scheme


def linear() -> Scheme:
    """Sizes in proportion to the client's number, from 1 up."""

    def scheme(_labels: NDArray[np.int64], num_partitions: int, _seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import LinearPartitioner

        return LinearPartitioner(num_partitions)

    return scheme


def square() -> Scheme:
    """Sizes in proportion to the square of the client's number."""

    def scheme(_labels: NDArray[np.int64], num_partitions: int, _seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import SquarePartitioner

        return SquarePartitioner(num_partitions)

    return scheme


def exponential() -> Scheme:
    """Sizes in proportion to the exponential of the client's number: for a handful of clients."""

    def scheme(_labels: NDArray[np.int64], num_partitions: int, _seed: int) -> "Partitioner":
        from flwr_datasets.partitioner import ExponentialPartitioner

        return ExponentialPartitioner(num_partitions)

    return scheme


def stc(classes: int, gamma: float = 1.0, alpha: float = 0.1) -> Scheme:
    """The split of the STC paper, see `fedcomp.data.stc_partitioner`; gamma 1 is balanced.

    Volumes are rounded down, so that fewer samples than there are clients stay unused.
    """
    _check_count("classes", classes)
    _check_number("gamma", gamma, above=0, most=1)
    _check_number("alpha", alpha, least=0, most=1)

    def scheme(labels: NDArray[np.int64], num_partitions: int, seed: int) -> "Partitioner":
        from fedcomp.data.stc_partitioner import StcPartitioner

        _check_classes(labels, classes)
        return StcPartitioner(num_partitions, LABEL, classes, gamma, alpha, seed)

    return scheme


SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "classes": classes,
    "shards": shards,
    "linear": linear,
    "square": square,
    "exponential": exponential,
    "stc": stc,
}
"""Name -> constructor of the schemes that there are."""


def parse_scheme(spec: str) -> Scheme:
    """Return the scheme that `spec` names; raises `ValueError` for an unknown one or a setting out of range."""
    return build(spec, SCHEMES, "partition scheme")


def partition(spec: str, labels: NDArray[np.integer], num_partitions: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the sorted sample indices of each client: disjoint, none empty, and all unless the scheme says otherwise.

    Raises `ValueError`, before any long work, for settings that the labels or the number of clients cannot meet.
    """
    scheme = parse_scheme(spec)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels of shape {labels.shape} and dtype {labels.dtype}; whole numbers (N,) are needed")
    if num_partitions < 1 or seed < 0:
        raise ValueError(f"{num_partitions} clients and seed {seed}; at least 1 client and seed 0 are needed")
    values = labels.astype(np.int64)
    try:
        _check_enough(values, num_partitions, 1)
        return _split(scheme(values, num_partitions, seed), values, num_partitions, seed)
    except ValueError as error:
        raise ValueError(f"{spec} for {num_partitions} clients: {error}") from None


@lru_cache(maxsize=4)
def partition_train(dataset: Dataset, spec: str, num_partitions: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return `partition` of a dataset's training labels, read-only, and kept: simulated clients ask every round."""
    parts = partition(spec, dataset.train.y, num_partitions, seed)
    for part in parts:
        part.setflags(write=False)
    return tuple(parts)


def _split(
    partitioner: "Partitioner", labels: NDArray[np.int64], num_partitions: int, seed: int
) -> list[NDArray[np.int64]]:
    from datasets import Dataset as Table

    order = np.random.default_rng(seed).permutation(len(labels))
    partitioner.dataset = Table.from_dict({INDEX: order, LABEL: labels[order]})
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what they warn of is an error or documented here
        warnings.simplefilter("ignore")
        parts = [partitioner.load_partition(client)[INDEX][:] for client in range(num_partitions)]
    for client, part in enumerate(parts):
        if len(part) == 0:
            raise ValueError(f"client {client} would get no samples; fewer clients or a milder scheme are needed")
    return [np.sort(np.asarray(part, np.int64)) for part in parts]


def _check_enough(labels: NDArray[np.int64], num_partitions: int, each: int) -> None:
    if num_partitions * each > len(labels):
        raise ValueError(f"{len(labels)} samples; at least {each} for each client, {num_partitions * each}, are needed")


def _check_classes(labels: NDArray[np.int64], count: int) -> None:
    there = len(np.unique(labels))
    if count > there:
        raise ValueError(f"{count} classes a client; the labels have {there}")


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number, at least 1, is needed")


def _check_number(
    name: str, value: object, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; a number is needed")
    if not (value > above and least <= value <= most):
        low = f"above {above:g}" if math.isfinite(above) else f"at least {least:g}"
        high = f" and at most {most:g}" if math.isfinite(most) else ""
        raise ValueError(f"{name} is {value!r}; {low}{high} is needed")
