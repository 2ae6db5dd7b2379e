"""The consensus step size of a method on a graph: found by averaging random models without training."""

from dataclasses import replace

import numpy as np

from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.gossip.network import Network
from fedcomp.gossip.topology import Topology

STEP_SIZES = tuple(2.0**-power for power in range(8))
ENTRIES = 2048
ROUNDS = 60


def find_step_size(topology: Topology, method: Choco | DeepSqueeze) -> Choco | DeepSqueeze:
    """Return `method` with the step size, of 1, 1/2, ... 1/128, that brings random models closest together in 60 rounds.

    The theorem of CHOCO gives a step size that always converges, and is far too small: Koloskova et al., ICML 2019, Theorem 2.
    The models here are Gaussian vectors of 2,048 entries, one for each node; their differences are as hard to compress as
    any.  Nothing is random between two calls.
    """
    best, least = method, np.inf
    for size in STEP_SIZES:
        candidate = replace(method, step_size=size)
        if (distance := _distance(topology, candidate)) < least:
            best, least = candidate, distance
        elif least < np.inf:
            break  # smaller steps are only slower
    return best


def _distance(topology: Topology, method: Choco | DeepSqueeze) -> float:
    """Return the consensus distance after `ROUNDS` rounds of averaging; infinity if the numbers grow beyond float32."""
    rng = np.random.default_rng(0)
    network = Network(topology, {"w": np.zeros(ENTRIES, np.float32)}, method)
    models = [{"w": rng.standard_normal(ENTRIES, np.float32)} for _ in range(topology.num_nodes)]
    try:
        for _ in range(ROUNDS):
            network.exchange(models)
            models = [network.model(node) for node in range(topology.num_nodes)]
    except ValueError:
        return np.inf
    return network.consensus_distance
