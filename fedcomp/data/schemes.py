"""Partition schemes by name: flwr-datasets' own partitioners, and a few that it lacks.

Samples come shuffled, as ``FederatedDataset`` shuffles them, so that every scheme depends on the seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import check_bool, check_int, check_range, required
from fedcomp.data.dirichlet import bounded_alpha, dirichlet_split
from fedcomp.data.splits import Indices, natural_split, skewed_split, stc_split

LABEL = "label"
INDEX = "index"
MAX_COUNT = 1_000_000_000
"""The most samples, classes or shards that a setting can ask for."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All that a scheme may read: labels int64 (N,), and columns int64 (N,) that name the owner of each sample."""

    labels: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.int64]]


Scheme = Callable[[Samples, int, int], Indices]
"""(samples, number of clients, seed) -> the indices of each client, or `ValueError` if the samples are too few."""


def iid() -> Scheme:
    """Equal parts, drawn at random; sizes differ by at most one."""
    return lambda samples, num_clients, _seed: _assign(samples, num_clients, "IidPartitioner", num_clients)


def dirichlet(alpha: float, min_size: int = 1) -> Scheme:
    """Each class is divided by Dirichlet(alpha), drawn until each client has `min_size`.  Yurochkin et al., 2019."""
    check_range("alpha", alpha, above=0)
    check_int("min_size", min_size, 1, MAX_COUNT)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        check_enough(samples, num_clients, min_size)
        return dirichlet_split(samples.labels, num_clients, alpha, min_size, seed)

    return scheme


def inner_dirichlet(alpha: float) -> Scheme:
    """Equal sizes; each client's share of the classes is drawn from Dirichlet(alpha).  Acar et al., ICLR 2021.

    It draws sample by sample: seconds for 60,000.
    """
    check_range("alpha", alpha, above=0)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        sizes = [len(part) for part in np.array_split(samples.labels, num_clients)]
        codes = np.unique(samples.labels, return_inverse=True)[1].astype(np.int64)  # it needs labels 0, 1, ...
        try:
            coded, each = Samples(codes, {}), bounded_alpha(alpha, int(codes.max()) + 1)
            return _assign(coded, num_clients, "InnerDirichletPartitioner", sizes, LABEL, each, seed=seed)
        except ValueError as error:
            if "NaN" not in str(error):
                raise
            text = f"alpha is {alpha:g}, and a client's shares of all remaining classes are 0; a larger alpha is needed"
            raise ValueError(text) from None

    return scheme


def classes(count: int) -> Scheme:
    """Exactly `count` classes for each client: its first class in turn, and the others at random.

    Li et al., arXiv 2102.02079.  With fewer clients than classes, the samples of a class that no client drew stay unused.
    """
    check_int("count", count, 1, MAX_COUNT)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        present = len(np.unique(samples.labels))
        if count > present:
            raise ValueError(f"{count} classes for each client; the labels have {present}")
        settings = (num_clients, LABEL, count, "first-deterministic")
        try:
            return _assign(samples, num_clients, "PathologicalPartitioner", *settings, seed=seed)
        except ValueError:
            text = f"count is {count}, and more clients draw a class than it has samples; fewer clients or classes are needed"
            raise ValueError(text) from None

    return scheme


def shards(
    shards_per_client: int | None = 2, shard_size: int | None = None, keep_incomplete_shard: bool = False
) -> Scheme:
    """Samples are sorted by class and cut into shards, a few for each client.  McMahan et al., 2017.

    Incomplete shards, and shards beyond `shards_per_client`, stay unused; ``shards(None, 300, True)`` uses all samples.
    """
    for name, value in (("shards_per_client", shards_per_client), ("shard_size", shard_size)):
        if value is not None:
            check_int(name, value, 1, MAX_COUNT)
    check_bool("keep_incomplete_shard", keep_incomplete_shard)
    if shards_per_client is None and shard_size is None:
        raise ValueError("neither shards_per_client nor shard_size is given; one of them is needed")

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        if shards_per_client is not None:  # else an incomplete shard may be enough for a client
            check_enough(samples, num_clients, shards_per_client * (shard_size or 1))
        settings = (num_clients, LABEL, shards_per_client, shard_size, keep_incomplete_shard)
        try:
            return _assign(samples, num_clients, "ShardPartitioner", *settings, seed=seed)
        except ValueError:
            each = f"{shards_per_client or 1} shards of {shard_size or 'at least 1'} samples"
            raise ValueError(f"{len(samples.labels)} samples; {each} for each client are needed") from None

    return scheme


def linear() -> Scheme:
    """Sizes are in proportion to the client's number, from 1 up."""
    return _by_number("LinearPartitioner", "its number")


def square() -> Scheme:
    """Sizes are in proportion to the square of the client's number."""
    return _by_number("SquarePartitioner", "the square of its number")


def exponential() -> Scheme:
    """Sizes are in proportion to the exponential of the client's number; only for a few clients."""
    return _by_number("ExponentialPartitioner", "the exponential of its number")


def sizes(each: list[int]) -> Scheme:
    """The given sizes, client by client, drawn at random; the remaining samples stay unused."""
    if not isinstance(each, list | tuple) or not each:
        raise ValueError(f"each is {each!r}; a list of sizes, one for each client, is needed")
    for size in each:
        check_int("a size", size, 1, MAX_COUNT)

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Indices:
        if len(each) != num_clients:
            raise ValueError(f"{len(each)} sizes; one for each client, {num_clients}, is needed")
        return _of_sizes(samples, each)

    return scheme


def quantity(alpha: float, min_size: int = 1) -> Scheme:
    """Sizes are drawn from Dirichlet(alpha), with random classes: quantity skew.  Li et al., arXiv 2102.02079.

    Each client first gets `min_size` samples, so that none is empty; the draw divides the rest.
    """
    check_range("alpha", alpha, above=0)
    check_int("min_size", min_size, 1, MAX_COUNT)

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        check_enough(samples, num_clients, min_size)
        shares = np.random.default_rng(seed).dirichlet(np.full(num_clients, bounded_alpha(alpha, num_clients)))
        rest = len(samples.labels) - num_clients * min_size
        ends = np.floor(np.cumsum(shares)[:-1] * rest).astype(np.int64).clip(0, rest)
        return _of_sizes(samples, (min_size + np.diff(ends, prepend=0, append=rest)).tolist())

    return scheme


def skewed(share: float) -> Scheme:
    """A `share` of the samples is assigned class by class, the others at random; sizes are equal.  Hsieh et al., ICML 2020."""
    check_range("share", share, least=0, most=1)
    return lambda samples, num_clients, _seed: skewed_split(samples.labels, num_clients, share)


def natural(column: str) -> Scheme:
    """Each client has the samples of one writer, speaker or the like, named by a `column` of the dataset.

    With fewer clients than writers, each client has all samples of several writers, with at most one writer more than others.
    """
    if not isinstance(column, str) or not column:
        raise ValueError(f"column is {column!r}; the name of a column of the dataset is needed")

    def scheme(samples: Samples, num_clients: int, seed: int) -> Indices:
        if column not in samples.groups:
            known = ", ".join(samples.groups) or "none"
            raise ValueError(f"the dataset has no column {column!r} of owners; it has: {known}")
        return natural_split(samples.groups[column], num_clients, seed)

    return scheme


def stc(classes: int, gamma: float = 1.0, alpha: float = 0.1) -> Scheme:
    """The split of the STC paper, see `stc_split`: few classes and decreasing volumes; gamma 1 is balanced."""
    check_int("classes", classes, 1, MAX_COUNT)
    check_range("gamma", gamma, above=0, most=1)
    check_range("alpha", alpha, least=0, most=1)

    return lambda samples, num_clients, seed: stc_split(samples.labels, num_clients, classes, gamma, alpha, seed)


@dataclass(frozen=True, slots=True)
class Own:
    """No samples are assigned: each node trains on all samples in its own folder, as real devices do."""

    def __call__(self, _samples: Samples, _num_clients: int, _seed: int) -> Indices:
        """Raise `ValueError`: there are no samples to assign."""
        raise ValueError("each node brings its own samples; a scheme that assigns samples, such as iid(), is needed")


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
    "skewed": skewed,
    "natural": natural,
    "own": Own,
    "stc": stc,
}
"""Name -> constructor of each scheme."""


def check_enough(samples: Samples, num_clients: int, each: int) -> None:
    """Raise `ValueError` unless every client can have `each` samples."""
    found, need = len(samples.labels), num_clients * each
    if need > found:
        raise ValueError(f"{found} samples; at least {each} for each client, {need}, are needed")


def _assign(samples: Samples, num_clients: int, partitioner: str, *args: Any, **settings: Any) -> Indices:
    """Return the indices that a partitioner of flwr-datasets gives each client."""
    with required("fedcomp.data", "app", "datasets", "flwr_datasets"):  # slow: only the server and simulations need it
        from flwr_datasets import partitioner as partitioners

        from datasets import Dataset as Table

    made = getattr(partitioners, partitioner)(*args, **settings)
    made.dataset = Table.from_dict({INDEX: np.arange(len(samples.labels)), LABEL: samples.labels})
    return [np.asarray(made.load_partition(client)[INDEX][:], np.int64) for client in range(num_clients)]


def _by_number(partitioner: str, proportion: str) -> Scheme:
    """Return a scheme whose sizes are in `proportion` to something of a client's number, by a partitioner of flwr-datasets."""

    def scheme(samples: Samples, num_clients: int, _seed: int) -> Indices:
        try:
            return _assign(samples, num_clients, partitioner, num_clients)
        except (OverflowError, ValueError):
            text = f"{len(samples.labels)} samples are too few: a client has as many as is in proportion to {proportion}, and "
            raise ValueError(f"{text}the first one would get none; fewer clients are needed") from None

    return scheme


def _of_sizes(samples: Samples, each: list[int]) -> Indices:
    if sum(each) > len(samples.labels):
        raise ValueError(f"{len(samples.labels)} samples; the sizes need {sum(each)}")
    return _assign(samples, len(each), "SizePartitioner", list(each))
