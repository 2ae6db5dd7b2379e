"""Splits of samples among clients: a partition text such as ``dirichlet(alpha=0.1)`` -> index arrays.

The same seed gives the same split on every machine.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.dataset import NO_GROUPS, Dataset
from fedcomp.data.partition_text import ImageRotation, parse_partition
from fedcomp.data.schemes import Samples, check_enough


def partition(
    text: str,
    labels: NDArray[np.integer],
    num_clients: int,
    seed: int,
    groups: Mapping[str, NDArray[np.integer]] = NO_GROUPS,
) -> list[NDArray[np.int64]]:
    """Return the sorted sample indices of each client: disjoint, none empty; most schemes use all samples.

    `text` is a partition, such as ``"classes(2)"``.  `labels` (N,) are the labels of all samples, and `groups` the columns (N,)
    that name the owner of each sample, for natural clients.  There is at least 1 client, and seeds start at 0.

    Raises `ValueError` for other labels and columns, and if the samples or the number of clients do not fit the settings; all
    are checked before any long work.
    """
    scheme = parse_partition(text).scheme
    for name, column in (("labels", labels), *groups.items()):
        if column.shape != (labels.size,) or not np.issubdtype(column.dtype, np.integer):
            found, need = f"shape {column.shape} and dtype {column.dtype}", f"whole numbers ({labels.size},)"
            raise ValueError(f"{name} of {found}; {need} are needed")
    if num_clients < 1 or seed < 0:
        raise ValueError(f"{num_clients} clients and seed {seed}; at least 1 client and seed 0 are needed")
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = Samples(
        labels[order].astype(np.int64), {name: column[order].astype(np.int64) for name, column in groups.items()}
    )
    try:
        check_enough(shuffled, num_clients, 1)
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # of flwr-datasets, on settings that it then refuses
            warnings.simplefilter("ignore")
            parts = scheme(shuffled, num_clients, seed)
        for client, part in enumerate(parts):
            if len(part) == 0:
                raise ValueError(f"client {client} would get no samples; fewer clients or a milder scheme are needed")
    except ValueError as error:
        raise ValueError(f"{text} for {num_clients} clients: {error}") from None
    return [np.sort(order[part]) for part in parts]


@lru_cache(maxsize=4)
def partition_train(dataset: Dataset, text: str, num_clients: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return `partition` of a dataset's training split, read-only and cached: simulated clients call this in each round.

    Raises `ValueError` as `partition` does, and for a feature skew that the dataset's samples cannot have.
    """
    rotates = any(isinstance(skew, ImageRotation) for skew in parse_partition(text).skews)
    shape = dataset.card.shape
    if rotates and (len(shape) != 3 or min(shape[1:]) < 2):
        raise ValueError(f"{text}: samples of shape {list(shape)}; images of at least 2x2 are needed to rotate")
    parts = partition(text, dataset.train.y, num_clients, seed, dataset.train.groups)
    for part in parts:
        part.setflags(write=False)
    return tuple(parts)
