"""The split by Dirichlet shares of each class, drawn until it fits, with exactly the draws of flwr-datasets.

flwr-datasets gives up after eleven draws, but a hundred clients with few classes each often need hundreds.  Here a draw
consists of numbers, and only the draw that fits becomes indices.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.splits import Indices

MAX_DRAWS = 10_000
"""The most draws, which take a few seconds.  There is no time limit: all machines draw the same split, or none."""


def dirichlet_split(labels: NDArray[np.int64], num_clients: int, alpha: float, min_size: int, seed: int) -> Indices:
    """Return the indices of each client: each class of the `labels` (N,) is divided by a draw from Dirichlet(alpha).

    All classes are drawn again until each client has `min_size` samples.  Yurochkin et al., 2019.  Raises `ValueError` if none
    of `MAX_DRAWS` draws fits.
    """
    rng = np.random.default_rng(seed)
    alphas = np.full(num_clients, bounded_alpha(alpha, num_clients))
    counts = np.unique(labels, return_counts=True)[1]
    best = 0
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(alphas, size=len(counts))
        ends = (np.cumsum(shares, axis=1) * counts[:, None]).astype(np.int64)
        ends[:, -1] = counts
        least = int(np.diff(ends, axis=1, prepend=0).sum(axis=0).min())
        if least >= min_size:
            break
        best = max(best, least)
    else:
        raise ValueError(_no_draw_fits(num_clients, alpha, min_size, seed, best))
    classes = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    parts = [np.split(members, cuts[:-1]) for members, cuts in zip(classes, ends, strict=True)]
    return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]


def bounded_alpha(alpha: float, number: int) -> float:
    """Return `alpha`, or the largest alpha whose `number`-fold is a float: shares are equal for far smaller ones already."""
    return min(float(alpha), sys.float_info.max / number * (1 - 1e-9))


def _no_draw_fits(num_clients: int, alpha: float, min_size: int, seed: int, best: int) -> str:
    """Return the sentence that names the argument at fault; in the best draw, the client with the fewest samples has `best`."""
    if best:
        return (
            f"min_size is {min_size}, and in the best of {MAX_DRAWS} draws with alpha {alpha:g} and seed {seed}, "
            f"a client has {best} samples; a smaller min_size is needed, or a larger alpha"
        )
    return (
        f"alpha is {alpha:g}, and in each of {MAX_DRAWS} draws with seed {seed} and min_size {min_size}, one of "
        f"{num_clients} clients has no samples; a larger alpha is needed, or fewer clients"
    )
