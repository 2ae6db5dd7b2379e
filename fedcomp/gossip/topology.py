"""Graphs whose nodes exchange models with their neighbours, and the weights of the exchange."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import build, check_int

MAX_NODES = 4096
"""The mixing matrix of this number of nodes takes 128 MiB."""
Edge = tuple[int, int]
PAIR = 2


@dataclass(frozen=True)
class Topology:
    """An undirected, connected graph of the nodes 0 to `num_nodes` - 1; `edges` are pairs of nodes, the lower one first.

    Raises `ValueError` for a graph that is not connected, for an edge that does not join two of its nodes, and for an edge that
    occurs twice.
    """

    num_nodes: int
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        check_int("num_nodes", self.num_nodes, 2, MAX_NODES)
        for edge in self.edges:
            is_pair = len(edge) == PAIR and all(isinstance(node, int) for node in edge)
            if not is_pair or not 0 <= edge[0] < edge[1] < self.num_nodes:
                raise ValueError(f"the edge {list(edge)}; two different nodes, 0 to {self.num_nodes - 1}, are needed")
        if len(set(self.edges)) < len(self.edges):
            twice = next(edge for edge in self.edges if self.edges.count(edge) > 1)
            raise ValueError(f"the edge {list(twice)} comes twice; once is needed")
        reached, new = {0}, {0}
        while new:
            new = {other for node in new for other in self.neighbors[node]} - reached
            reached |= new
        if lost := set(range(self.num_nodes)) - reached:
            raise ValueError(f"the graph is not connected: no path leads from node 0 to node {min(lost)}")

    @cached_property
    def neighbors(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours of each node, in ascending order, without the node itself."""
        found: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for first, second in self.edges:
            found[first].append(second)
            found[second].append(first)
        return tuple(tuple(sorted(each)) for each in found)

    def weight(self, node: int, neighbor: int) -> float:
        """Return the Metropolis-Hastings weight of two neighbours, 1 / (1 + the larger of their numbers of neighbours)."""
        return 1 / (1 + max(len(self.neighbors[node]), len(self.neighbors[neighbor])))

    def weights(self, node: int) -> dict[int, float]:
        """Return the mixing weights of the neighbours of a node."""
        return {neighbor: self.weight(node, neighbor) for neighbor in self.neighbors[node]}

    @cached_property
    def mixing(self) -> NDArray[np.float64]:
        """The mixing matrix (n, n): symmetric, with entries of at least 0, and rows that sum to 1."""
        matrix = np.zeros((self.num_nodes, self.num_nodes))
        for first, second in self.edges:
            matrix[first, second] = matrix[second, first] = self.weight(first, second)
        np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
        return matrix

    @property
    def spectral_gap(self) -> float:
        """1 minus the second largest magnitude among the eigenvalues of the mixing matrix: how fast models become equal."""
        magnitudes = np.sort(np.abs(np.linalg.eigvalsh(self.mixing)))
        return float(1 - magnitudes[-2])


MakeTopology = Callable[[int], Topology]
"""Makes the graph of a number of nodes; raises `ValueError` for a number that does not fit."""


def ring() -> MakeTopology:
    """The neighbours of each node are the previous node and the next node."""
    return lambda num_nodes: _of_steps(num_nodes, [1])


def torus(rows: int = 0) -> MakeTopology:
    """A grid of `rows` by N / `rows` nodes whose opposite borders are joined; 0 takes the most square grid."""
    check_int("rows", rows, 0, MAX_NODES)

    def make(num_nodes: int) -> Topology:
        height = rows or max(side for side in range(1, math.isqrt(num_nodes) + 1) if num_nodes % side == 0)
        if num_nodes % height:
            raise ValueError(f"{num_nodes} nodes; a torus of {height} rows needs a multiple of {height}")
        nodes = np.arange(num_nodes).reshape(height, -1)
        pairs = np.concatenate([np.stack((nodes, np.roll(nodes, -1, axis)), -1).reshape(-1, 2) for axis in (0, 1)])
        return _of_pairs(num_nodes, [(int(first), int(second)) for first, second in pairs])

    return make


def exponential() -> MakeTopology:
    """The neighbours of each node are the nodes 1, 2, 4, ... steps away on a ring."""
    return lambda num_nodes: _of_steps(num_nodes, [1 << power for power in range(max(1, (num_nodes - 1).bit_length()))])


def complete() -> MakeTopology:
    """The neighbours of each node are all other nodes."""
    return lambda num_nodes: _of_pairs(num_nodes, list(combinations(range(num_nodes), 2)))


def edges(pairs: Sequence[Sequence[int]]) -> MakeTopology:
    """The graph with these edges, such as ``edges([[0, 1], [1, 2]])``; nodes count from 0."""
    given: object = pairs  # from a text, this may be anything
    if not isinstance(given, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError(f"edges are {pairs!r}; a list of pairs of nodes, as [[0, 1], [1, 2]], is needed")
    for pair in pairs:
        for node in pair:
            check_int("the node of an edge", node, 0, MAX_NODES - 1)

    def make(num_nodes: int) -> Topology:
        return Topology(num_nodes, tuple(sorted((min(pair), max(pair)) for pair in pairs)))

    return make


TOPOLOGIES: Mapping[str, Callable[..., MakeTopology]] = {
    make.__name__: make for make in (ring, torus, exponential, complete, edges)
}
"""Name -> maker of each kind of graph."""


def parse_topology(text: str, num_nodes: int) -> Topology:
    """Return the graph of `num_nodes` >= 2 nodes that `text` describes: ``"ring()"``, ``"edges([[0, 1], [1, 2]])"``, ...

    Raises `ValueError` for another form, an unknown name, and a graph that is not possible.

    Examples:
        >>> parse_topology("ring()", 4).neighbors
        ((1, 3), (0, 2), (1, 3), (0, 2))

    """
    check_int("num_nodes", num_nodes, 2, MAX_NODES)
    return build(text, TOPOLOGIES, "topology")(num_nodes)


def _of_steps(num_nodes: int, steps: Sequence[int]) -> Topology:
    return _of_pairs(num_nodes, [(node, (node + step) % num_nodes) for node in range(num_nodes) for step in steps])


def _of_pairs(num_nodes: int, pairs: Sequence[Edge]) -> Topology:
    """Return the graph with these edges, each counted once, without edges from a node to itself."""
    found = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}
    return Topology(num_nodes, tuple(sorted(found)))
