"""Splits that flwr-datasets lacks: by the owners of samples, by a share of sorted samples, and as in the STC paper."""

import numpy as np
from numpy.typing import NDArray

Indices = list[NDArray[np.int64]]
"""For each client, the indices of its samples."""


def natural_split(owners: NDArray[np.int64], num_clients: int, seed: int) -> Indices:
    """Return the sorted indices of each client, which has all samples of one or more of the `owners` (N,).

    The seed draws the order in which owners are assigned to the clients in turn, so the clients' numbers of owners differ by at
    most one.  Raises `ValueError` for more clients than owners.  (flwr-datasets' own partitioner reads all samples once for
    each client, and its caller cannot choose the number of clients.)
    """
    values, codes = np.unique(owners, return_inverse=True)
    if num_clients > len(values):
        raise ValueError(f"{len(values)} natural clients in the data; at most as many clients are possible")
    client_of = np.empty(len(values), np.int64)
    client_of[np.random.default_rng(seed).permutation(len(values))] = np.arange(len(values)) % num_clients
    clients = client_of[codes]
    order = np.argsort(clients, kind="stable")
    return np.split(order, np.cumsum(np.bincount(clients, minlength=num_clients))[:-1])


def skewed_split(labels: NDArray[np.int64], num_clients: int, share: float) -> Indices:
    """Return the sorted indices of each client; the sizes differ by at most two.

    The first `share` of the samples is sorted by class and cut into equal parts, client by client.  The other samples are cut
    likewise, but unsorted.  If the sorted samples cannot be divided equally, the first clients get one more; of the other
    samples, the last clients do.
    """
    cut = round(share * len(labels))
    by_class = np.argsort(labels[:cut], kind="stable")
    others = np.arange(len(labels) - 1, cut - 1, -1)
    parts = zip(np.array_split(by_class, num_clients), reversed(np.array_split(others, num_clients)), strict=True)
    return [np.sort(np.concatenate(pair)).astype(np.int64) for pair in parts]


def stc_volumes(num_clients: int, gamma: float, alpha: float = 0.1) -> NDArray[np.float64]:
    """Return each client's fraction of the data: alpha/N + (1-alpha) gamma^i / sum_j gamma^j.  They sum to one."""
    powers = np.power(float(gamma), np.arange(num_clients))
    shares: NDArray[np.float64] = alpha / num_clients + (1 - alpha) * powers / powers.sum()
    return shares


def stc_split(
    labels: NDArray[np.int64], num_clients: int, classes: int, gamma: float, alpha: float, seed: int
) -> Indices:
    """Return the sorted indices of each client: few classes each, and volumes that decrease geometrically.

    Client i gets floor(volume * samples), so fewer samples than there are clients stay unused.  It draws a first class
    and takes equal parts of `classes` consecutive classes, in shuffled order.  It skips an empty class, and if a class
    has too few samples, it takes the missing ones from the following classes.  So no sample is used twice, and a client has
    another number of classes only if classes ran out.  As in the authors' code, the smallest clients come first, so that this
    happens to the largest clients.
    Sattler et al., IEEE TNNLS 2019, section VI.
    Raises `ValueError` if a client would get fewer samples than classes.
    """
    values, codes = np.unique(labels, return_inverse=True)
    if classes > len(values):
        raise ValueError(f"{classes} classes for each client; the labels have {len(values)}")
    # 1/3 of 600 is a rounding error below 200; 1e-6 of a sample makes up for it.
    sizes = np.floor(stc_volumes(num_clients, gamma, alpha) * len(labels) + 1e-6).astype(np.int64)
    if sizes.min() < classes:
        poorest = int(sizes.argmin())
        raise ValueError(f"client {poorest} would get {sizes[poorest]} samples; {classes} classes need as many")
    rng = np.random.default_rng(seed)
    left = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    parts = [_fill(left, int(size), classes, int(rng.integers(len(values)))) for size in sizes[::-1]]
    return parts[::-1]


def _fill(left: Indices, budget: int, classes: int, code: int) -> NDArray[np.int64]:
    """Remove `budget` indices from `left`, starting with class `code`, and return them."""
    taken: Indices = []
    while budget > 0:
        if len(left[code]) > 0:
            part = left[code][: -(-budget // classes)]
            left[code] = left[code][len(part) :]
            taken.append(part)
            budget -= len(part)
            classes = max(classes - 1, 1)
        code = (code + 1) % len(left)
    return np.sort(np.concatenate(taken))
