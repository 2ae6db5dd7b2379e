"""The split of the STC paper: few classes a client, and volumes that fall off geometrically.

Sattler et al., "Robust and Communication-Efficient Federated Learning from Non-IID Data", IEEE TNNLS 2019, section VI.
"""

import math

import numpy as np
from flwr_datasets.partitioner import Partitioner
from numpy.typing import NDArray

import datasets


def volumes(num_partitions: int, gamma: float, alpha: float = 0.1) -> NDArray[np.float64]:
    """Return each partition's share of the data: alpha/N + (1-alpha) gamma^i / sum_j gamma^j.  They sum to one."""
    powers = np.power(float(gamma), np.arange(num_partitions))
    shares: NDArray[np.float64] = alpha / num_partitions + (1 - alpha) * powers / powers.sum()
    return shares


def stc_split(
    labels: NDArray[np.int64], num_partitions: int, classes: int, gamma: float, alpha: float, seed: int
) -> list[NDArray[np.int64]]:
    """Return the sorted indices of each partition.

    Partition i gets floor(share * samples), so fewer than `num_partitions` samples stay unused.  It draws a start class
    and takes even parts from `classes` consecutive classes, in shuffled order.  A class that has run dry is passed
    over, and what one with too few samples cannot give, the following ones give.  So no sample is used twice, and a
    partition holds more or fewer classes than asked only where classes ran dry.  The smallest are served first, as in
    the authors' code, so that this falls on the largest.  Raises `ValueError` when a partition would get fewer samples
    than classes.
    """
    values, codes = np.unique(labels, return_inverse=True)
    if classes > len(values):
        raise ValueError(f"{classes} classes a client; the labels have {len(values)}")
    # Equal shares such as 1/3 of 600 come out a rounding error below the whole number: 1e-6 of a sample forgives it.
    sizes = np.floor(volumes(num_partitions, gamma, alpha) * len(labels) + 1e-6).astype(np.int64)
    if sizes.min() < classes:
        poorest = int(sizes.argmin())
        raise ValueError(f"client {poorest} would get {sizes[poorest]} samples; {classes} classes need as many")
    rng = np.random.default_rng(seed)
    left = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    parts = [_fill(left, int(size), classes, int(rng.integers(len(values)))) for size in sizes[::-1]]
    return parts[::-1]


def _fill(left: list[NDArray[np.int64]], budget: int, classes: int, start: int) -> NDArray[np.int64]:
    """Return `budget` indices, taken off `left` from class `start` on."""
    acked = []
    code = start
    while budget > 0:
        if len(left[code]) > 0:
            part = left[code][: -(-budget // classes)]
            left[code] = left[code][len(part) :]
            acked.append(part)
            budget -= len(part)
            classes = max(classes - 1, 1)
        code = (code + 1) % len(left)
    return np.sort(np.concatenate(acked))


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
        if num_partitions < 1:
            raise ValueError(f"num_partitions {num_partitions}; at least 1 is needed")
        if classes_per_partition < 1:
            raise ValueError(f"classes_per_partition {classes_per_partition}; at least 1 is needed")
        if not (math.isfinite(gamma) and 0 < gamma <= 1):
            raise ValueError(f"gamma {gamma}; above 0, at most 1, is needed")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha {alpha}; 0 to 1 is needed")
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
            labels = np.asarray(self.dataset[self._partition_by][:])
            self._parts = stc_split(labels, self._num_partitions, self._classes, self._gamma, self._alpha, self._seed)
        return self.dataset.select(self._parts[partition_id])
