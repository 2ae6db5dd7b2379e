"""The split of the STC paper: few classes for each client, and volumes that decrease geometrically.

Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID Data", IEEE TNNLS 2019, section VI.
"""

from typing import Any, cast

import numpy as np
from flwr_datasets.partitioner import Partitioner
from numpy.typing import NDArray

import datasets
from fedcomp.core import check_int, check_range
from fedcomp.data.schemes import MAX_COUNT


def volumes(num_partitions: int, gamma: float, alpha: float = 0.1) -> NDArray[np.float64]:
    """Return each partition's fraction of the data: alpha/N + (1-alpha) gamma^i / sum_j gamma^j.  They sum to one."""
    powers = np.power(float(gamma), np.arange(num_partitions))
    shares: NDArray[np.float64] = alpha / num_partitions + (1 - alpha) * powers / powers.sum()
    return shares


def stc_split(
    labels: NDArray[np.int64], num_partitions: int, classes: int, gamma: float, alpha: float, seed: int
) -> list[NDArray[np.int64]]:
    """Return the sorted indices of each partition.

    Partition i gets floor(volume * samples), so fewer than `num_partitions` samples stay unused.  It draws a first class
    and takes equal parts of `classes` consecutive classes, in shuffled order.  It skips an empty class, and takes what a
    class with too few samples lacks from the following ones.  So no sample is used twice, and a partition has another
    number of classes only if classes ran out.  As in the authors' code the smallest partitions come first, so that this
    happens to the largest.

    Raises:
        ValueError: a partition would get fewer samples than classes.

    """
    values, codes = np.unique(labels, return_inverse=True)
    if classes > len(values):
        raise ValueError(f"{classes} classes for each client; the labels have {len(values)}")
    # 1/3 of 600 is a rounding error below 200; 1e-6 of a sample forgives it.
    sizes = np.floor(volumes(num_partitions, gamma, alpha) * len(labels) + 1e-6).astype(np.int64)
    if sizes.min() < classes:
        poorest = int(sizes.argmin())
        raise ValueError(f"client {poorest} would get {sizes[poorest]} samples; {classes} classes need as many")
    rng = np.random.default_rng(seed)
    left = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    parts = [_fill(left, int(size), classes, int(rng.integers(len(values)))) for size in sizes[::-1]]
    return parts[::-1]


def _fill(left: list[NDArray[np.int64]], budget: int, classes: int, start: int) -> NDArray[np.int64]:
    """Return `budget` indices, removed from `left` from class `start` on."""
    taken: list[NDArray[np.int64]] = []
    code = start
    while budget > 0:
        if len(left[code]) > 0:
            part = left[code][: -(-budget // classes)]
            left[code] = left[code][len(part) :]
            taken.append(part)
            budget -= len(part)
            classes = max(classes - 1, 1)
        code = (code + 1) % len(left)
    return np.sort(np.concatenate(taken))


class StcPartitioner(Partitioner):  # type: ignore[misc]
    """`stc_split` in the form of flwr-datasets: ``FederatedDataset(partitioners={"train": StcPartitioner(...)})``."""

    def __init__(
        self,
        num_partitions: int,
        partition_by: str,
        classes_per_partition: int,
        gamma: float = 1.0,
        alpha: float = 0.1,
        seed: int = 42,
    ) -> None:
        """Keep the settings; raises `ValueError` for one out of range."""
        super().__init__()
        check_int("num_partitions", num_partitions, 1, MAX_COUNT)
        check_int("classes_per_partition", classes_per_partition, 1, MAX_COUNT)
        check_range("gamma", gamma, above=0, most=1)
        check_range("alpha", alpha, least=0, most=1)
        self._num_partitions = num_partitions
        self._partition_by = partition_by
        self._classes = classes_per_partition
        self._gamma = gamma
        self._alpha = alpha
        self._seed = seed
        self._parts: list[NDArray[np.int64]] = []

    @property
    def num_partitions(self) -> int:
        """The number of partitions."""
        return self._num_partitions

    def load_partition(self, partition_id: int) -> datasets.Dataset:
        """Return one partition; the split is made on the first call."""
        if not self._parts:
            column = cast(Any, self.dataset[self._partition_by])
            labels = np.asarray(column[:], np.int64)
            self._parts = stc_split(labels, self._num_partitions, self._classes, self._gamma, self._alpha, self._seed)
        return self.dataset.select(self._parts[partition_id])
