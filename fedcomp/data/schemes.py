"""The schemes by which samples are shared out, by name: flwr-datasets' own partitioners, and a few of ours.

Samples come shuffled, as ``FederatedDataset`` shuffles them, so that every scheme depends on the seed.  Left out of
flwr-datasets: the vertical ones, which split features, not samples; the continuous one, which sorts by a number that
no dataset here has; the one by a given table of class shares, which no short text can hold; and groups of natural ids
of a fixed size, since `natural` makes as many groups as there are clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import check_bool, check_range
from fedcomp.data.natural import natural_split

if TYPE_CHECKING:
    from flwr_datasets.partitioner import Partitioner

Parts = list[NDArray[np.int64]]
LABEL = "label"
INDEX = "index"


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All that a scheme may look at: labels int64 (N,), and columns int64 (N,) that say whose each sample is."""

    labels: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.int64]]


Scheme = Callable[[Samples, int, int], Parts]
"""(samples, number of clients, seed) -> the indices of each client, or `ValueError` where they do not fit."""


def iid() -> Scheme:
    """Equal parts, drawn at random; sizes differ by at most one."""

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Parts:
        from flwr_datasets.partitioner import IidPartitioner

        return _load(IidPartitioner(num_clients), samples, num_clients)

    return scheme


def dirichlet(alpha: float, min_size: int = 1) -> Scheme:
    """Each class shared out by Dirichlet(alpha), redrawn until each client has `min_size`.  Yurochkin et al., 2019."""
    check_range("alpha", alpha, above=0)
    _check_count("min_size", min_size)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        from flwr_datasets.partitioner import DirichletPartitioner

        check_enough(samples, num_clients, min_size)
        partitioner = DirichletPartitioner(num_clients, LABEL, float(alpha), min_partition_size=min_size, seed=seed)
        return _load(partitioner, samples, num_clients)

    return scheme


def inner_dirichlet(alpha: float) -> Scheme:
    """Equal sizes, each client's share of the classes by Dirichlet(alpha).  Acar et al., ICLR 2021.

    Draws sample by sample: seconds for 60,000.
    """
    check_range("alpha", alpha, above=0)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        from flwr_datasets.partitioner import InnerDirichletPartitioner

        sizes = np.full(num_clients, len(samples.labels) // num_clients)
        sizes[: len(samples.labels) % num_clients] += 1
        codes = np.unique(samples.labels, return_inverse=True)[1]  # it takes labels to be 0, 1, ...
        partitioner = InnerDirichletPartitioner(sizes, LABEL, float(alpha), seed=seed)
        try:
            return _load(partitioner, Samples(codes.astype(np.int64), {}), num_clients)
        except ValueError as error:
            if "NaN" not in str(error):
                raise
            text = "a client's shares of all the classes that are left came out as 0; a greater alpha is needed"
            raise ValueError(text) from None

    return scheme


def classes(count: int) -> Scheme:
    """Exactly `count` classes a client, the first by turns and the rest at random.  Li et al., arXiv 2102.02079.

    With fewer clients than classes, the samples of a class that no client drew stay unused.
    """
    _check_count("count", count)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        from flwr_datasets.partitioner import PathologicalPartitioner

        _check_classes(samples, count)
        partitioner = PathologicalPartitioner(num_clients, LABEL, count, "first-deterministic", seed=seed)
        return _load(partitioner, samples, num_clients)

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
    check_bool("keep_incomplete_shard", keep_incomplete_shard)
    if shards_per_client is None and shard_size is None:
        raise ValueError("neither shards_per_client nor shard_size; one of them is needed")

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        from flwr_datasets.partitioner import ShardPartitioner

        check_enough(samples, num_clients, (shards_per_client or 1) * (shard_size or 1))
        partitioner = ShardPartitioner(
            num_clients, LABEL, shards_per_client, shard_size, keep_incomplete_shard, seed=seed
        )
        return _load(partitioner, samples, num_clients)

    return scheme


def linear() -> Scheme:
    """Sizes in proportion to the client's number, from 1 up."""

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Parts:
        from flwr_datasets.partitioner import LinearPartitioner

        return _load(LinearPartitioner(num_clients), samples, num_clients)

    return scheme


def square() -> Scheme:
    """Sizes in proportion to the square of the client's number."""

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Parts:
        from flwr_datasets.partitioner import SquarePartitioner

        return _load(SquarePartitioner(num_clients), samples, num_clients)

    return scheme


def exponential() -> Scheme:
    """Sizes in proportion to the exponential of the client's number: for a handful of clients."""

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Parts:
        from flwr_datasets.partitioner import ExponentialPartitioner

        return _load(ExponentialPartitioner(num_clients), samples, num_clients)

    return scheme


def sizes(each: list[int]) -> Scheme:
    """The sizes given, client by client, drawn at random; what is over stays unused."""
    if not isinstance(each, list | tuple) or not each:
        raise ValueError(f"each is {each!r}; a list of sizes, one a client, is needed")
    for size in each:
        _check_count("a size", size)

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Parts:
        if len(each) != num_clients:
            raise ValueError(f"{len(each)} sizes; one for each client, {num_clients}, is needed")
        return _of_sizes(samples, each)

    return scheme


def quantity(alpha: float, min_size: int = 1) -> Scheme:
    """Sizes drawn from Dirichlet(alpha), classes as they fall: quantity skew.  Li et al., arXiv 2102.02079.

    Each client has `min_size` to begin with, and the rest is shared out by the draw: so none goes without.
    """
    check_range("alpha", alpha, above=0)
    _check_count("min_size", min_size)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        check_enough(samples, num_clients, min_size)
        shares = np.random.default_rng(seed).dirichlet(np.full(num_clients, float(alpha)))
        rest = len(samples.labels) - num_clients * min_size
        ends = np.floor(np.cumsum(shares)[:-1] * rest).astype(np.int64).clip(0, rest)
        return _of_sizes(samples, (min_size + np.diff(ends, prepend=0, append=rest)).tolist())

    return scheme


def natural(column: str) -> Scheme:
    """The samples of one writer, speaker or the like a client, by a `column` that the dataset brings.

    With fewer clients than writers, a client holds those of several whole ones, as many as the others or one more.
    """
    if not isinstance(column, str) or not column:
        raise ValueError(f"column is {column!r}; the name of a column of the dataset is needed")

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        if column not in samples.groups:
            there = ", ".join(samples.groups) or "none"
            raise ValueError(f"the dataset has no column {column!r} that says whose a sample is; it has: {there}")
        return natural_split(samples.groups[column], num_clients, seed)

    return scheme


def stc(classes: int, gamma: float = 1.0, alpha: float = 0.1) -> Scheme:
    """The split of the STC paper, see `fedcomp.data.stc_partitioner`; gamma 1 is balanced.

    Volumes are rounded down, so that fewer samples than there are clients stay unused.
    """
    _check_count("classes", classes)
    check_range("gamma", gamma, above=0, most=1)
    check_range("alpha", alpha, least=0, most=1)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Parts:
        from fedcomp.data.stc_partitioner import StcPartitioner

        return _load(StcPartitioner(num_clients, LABEL, classes, gamma, alpha, seed), samples, num_clients)

    return scheme


@dataclass(frozen=True, slots=True)
class Own:
    """Nothing is shared out: each node's own folder holds its samples, and all of them are its: for real devices."""

    def __call__(self, _samples: Samples, _num_clients: int, _seed: int) -> Parts:
        """Raise `ValueError`: there is nothing here to share out."""
        raise ValueError("each node brings its own samples; a scheme that shares some out, such as iid(), is needed")


SCHEMES: Mapping[str, Callable[..., Scheme]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "inner_dirichlet": inner_dirichlet,
    "classes": classes,
    "shards": shards,
    "linear": linear,
    "square": square,
    "exponential": exponential,
    "sizes": sizes,
    "quantity": quantity,
    "natural": natural,
    "own": Own,
    "stc": stc,
}
"""Name -> constructor of the schemes that there are."""


def check_enough(samples: Samples, num_clients: int, each: int) -> None:
    """Raise `ValueError` where `each` client of `num_clients` cannot have as many samples."""
    if num_clients * each > len(samples.labels):
        there, need = len(samples.labels), num_clients * each
        raise ValueError(f"{there} samples; at least {each} for each client, {need}, are needed")


def _load(partitioner: "Partitioner", samples: Samples, num_clients: int) -> Parts:
    """Return the indices that a partitioner of flwr-datasets gives each client."""
    from datasets import Dataset as Table

    partitioner.dataset = Table.from_dict({INDEX: np.arange(len(samples.labels)), LABEL: samples.labels})
    return [np.asarray(partitioner.load_partition(client)[INDEX][:], np.int64) for client in range(num_clients)]


def _of_sizes(samples: Samples, each: list[int]) -> Parts:
    from flwr_datasets.partitioner import SizePartitioner

    if sum(each) > len(samples.labels):
        raise ValueError(f"{len(samples.labels)} samples; the sizes need {sum(each)}")
    return _load(SizePartitioner(list(each)), samples, len(each))


def _check_classes(samples: Samples, count: int) -> None:
    there = len(np.unique(samples.labels))
    if count > there:
        raise ValueError(f"{count} classes a client; the labels have {there}")


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number, at least 1, is needed")
