"""Natural clients: each holds all samples of one or more writers, speakers or the like.

flwr-datasets' ``NaturalIdPartitioner`` reads all samples once for each client, and its groups have a fixed size, so that the
caller cannot choose their number.
"""

import numpy as np
from numpy.typing import NDArray


def natural_split(owners: NDArray[np.int64], num_clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the sorted indices of each client, which has all samples of one or more of the `owners` (N,).

    The seed draws the order in which owners go to the clients in turn, so clients have equally many, or one more.

    Raises:
        ValueError: there are more clients than owners.

    """
    values, codes = np.unique(owners, return_inverse=True)
    if num_clients > len(values):
        raise ValueError(f"{len(values)} natural clients in the data; at most as many clients are possible")
    client_of = np.empty(len(values), np.int64)
    client_of[np.random.default_rng(seed).permutation(len(values))] = np.arange(len(values)) % num_clients
    clients = client_of[codes]
    order = np.argsort(clients, kind="stable")
    return np.split(order, np.cumsum(np.bincount(clients, minlength=num_clients))[:-1])
