"""Natural clients: who wrote or spoke a sample holds it.

In place of flwr-datasets' ``NaturalIdPartitioner``, which passes over all samples once a client, and whose groups have a
fixed size, so that their number is not the caller's to choose.
"""

import numpy as np
from numpy.typing import NDArray


def natural_split(owners: NDArray[np.int64], num_clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the sorted indices of each client, who has all the samples of one or more of the `owners` (N,).

    The owners are dealt out in an order that the seed draws; clients have equally many, or one more.  Raises
    `ValueError` for more clients than owners.
    """
    values, codes = np.unique(owners, return_inverse=True)
    if num_clients > len(values):
        raise ValueError(f"{len(values)} natural clients in the data; at most as many clients are possible")
    client_of = np.empty(len(values), np.int64)
    client_of[np.random.default_rng(seed).permutation(len(values))] = np.arange(len(values)) % num_clients
    clients = client_of[codes]
    order = np.argsort(clients, kind="stable")
    return np.split(order, np.cumsum(np.bincount(clients, minlength=num_clients))[:-1])
