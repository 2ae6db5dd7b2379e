"""Measures of how unevenly a partition spreads classes and sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Distribution = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Samples by client and class: `counts` int64 (clients, classes), and `total` int64 (classes) with the unused samples.

    Every client has at least one sample.  Distances compare a client's distribution over the classes with the distribution of
    `total`: 0 if they are equal, 1 if they have no class in common.
    """

    counts: NDArray[np.int64]
    total: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each client, int64 (clients,)."""
        return np.asarray(self.counts.sum(axis=1), np.int64)

    @property
    def unused(self) -> int:
        """The number of samples that no client has."""
        return int(self.total.sum() - self.counts.sum())

    @property
    def classes(self) -> NDArray[np.int64]:
        """The number of classes that each client has samples of, int64 (clients,)."""
        return np.asarray(np.count_nonzero(self.counts, axis=1), np.int64)

    @property
    def shares(self) -> Distribution:
        """Each client's distribution over the classes (clients, classes); rows sum to one."""
        return self.counts / self.sizes[:, np.newaxis]

    @property
    def jensen_shannon(self) -> Distribution:
        """Each client's Jensen-Shannon distance to `total` (clients,)."""
        return jensen_shannon(self.shares, self.total / self.total.sum())

    @property
    def hellinger(self) -> Distribution:
        """Each client's Hellinger distance to `total` (clients,)."""
        return hellinger(self.shares, self.total / self.total.sum())

    @property
    def gini(self) -> float:
        """The Gini coefficient of the sizes."""
        return gini(self.sizes)


def spread(labels: NDArray[np.integer], parts: Sequence[NDArray[np.int64]], num_classes: int) -> Spread:
    """Return the spread of `parts`, the indices of each client, for samples with `labels` of 0 to num_classes - 1."""
    counts = np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts])
    return Spread(counts.astype(np.int64), np.bincount(labels, minlength=num_classes).astype(np.int64))


def jensen_shannon(p: Distribution, q: Distribution) -> Distribution:
    """Return the square root of the Jensen-Shannon divergence, base 2, along the last axis: a metric, in [0, 1].

    Endres and Schindelin, IEEE Trans. Inf. Theory, 2003.
    """
    middle = (p + q) / 2
    divergence = (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2
    return np.asarray(np.sqrt(divergence.clip(0, 1)))  # against rounding errors


def hellinger(p: Distribution, q: Distribution) -> Distribution:
    """Return the Hellinger distance along the last axis, in [0, 1]: the distance of the square roots, over sqrt 2."""
    return np.asarray(np.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=-1) / 2))


def gini(sizes: NDArray[np.integer]) -> float:
    """Return the Gini coefficient: half the mean difference over the mean; 0 for equal sizes, 1 - 1/n if one client has all."""
    ordered = np.sort(sizes).astype(np.float64)
    n = len(ordered)
    return float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * ordered.sum()))


def _relative_entropy(p: Distribution, q: Distribution) -> Distribution:
    """Return the sum of p log2(p / q), with 0 log 0 = 0; q is 0 only where p is."""
    ratio = np.divide(p, q, out=np.ones(np.broadcast_shapes(p.shape, q.shape)), where=p > 0)
    return np.asarray((p * np.log2(ratio)).sum(axis=-1))
