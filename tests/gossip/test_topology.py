"""Graphs and their mixing matrices: by hand, and by law."""

from typing import Any

import numpy as np
import pytest

from fedcomp.gossip import TOPOLOGIES, Topology, parse_topology

MADE = ["ring()", "torus()", "exponential()", "complete()"]


def test_a_path_of_three_has_the_weights_of_the_textbook() -> None:
    """The middle has two neighbours: 1 / (1 + 2) on both edges, and what is left on the diagonal."""
    graph = parse_topology("edges([[0, 1], [2, 1]])", 3)
    assert graph.edges == ((0, 1), (1, 2))
    assert graph.neighbors == ((1,), (0, 2), (1,))
    np.testing.assert_allclose(graph.mixing, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3)
    assert graph.spectral_gap == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "num_nodes", "neighbors_of_0"),
    [
        ("ring()", 2, (1,)),
        ("ring()", 5, (1, 4)),
        ("torus()", 12, (1, 3, 4, 8)),
        ("torus(rows=2)", 8, (1, 3, 4)),
        ("torus()", 7, (1, 6)),
        ("exponential()", 8, (1, 2, 4, 6, 7)),
        ("exponential()", 2, (1,)),
        ("complete()", 4, (1, 2, 3)),
    ],
)
def test_the_neighbours_are_those_of_the_name(text: str, num_nodes: int, neighbors_of_0: tuple[int, ...]) -> None:
    assert parse_topology(text, num_nodes).neighbors[0] == neighbors_of_0


@pytest.mark.parametrize("text", MADE)
@pytest.mark.parametrize("num_nodes", [2, 3, 4, 5, 8, 12, 17])
def test_mixing_matrices_are_doubly_stochastic_and_mix(text: str, num_nodes: int) -> None:
    graph = parse_topology(text, num_nodes)
    np.testing.assert_allclose(graph.mixing.sum(axis=0), 1)
    np.testing.assert_allclose(graph.mixing, graph.mixing.T)
    assert (graph.mixing >= 0).all()
    assert graph.mixing.diagonal().min() > 0
    assert 0 < graph.spectral_gap <= 1 + 1e-9
    for first, second in graph.edges:
        assert graph.weight(first, second) == graph.weight(second, first) == graph.mixing[first, second]


def test_a_complete_graph_averages_in_one_step() -> None:
    np.testing.assert_allclose(parse_topology("complete()", 6).mixing, 1 / 6)


def test_neighbors_are_in_ascending_order_whatever_the_order_of_the_edges() -> None:
    assert Topology(3, ((1, 2), (0, 1))).neighbors == ((1,), (0, 2), (1,))


@pytest.mark.parametrize("seed", range(10))
def test_random_connected_graphs_are_doubly_stochastic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 15))
    pairs = {(int(rng.integers(node)), node) for node in range(1, count)}
    pairs |= {(int(a), int(b)) for a, b in np.sort(rng.integers(count, size=(count, 2)), axis=1) if a != b}
    graph = Topology(count, tuple(sorted(pairs)))
    np.testing.assert_allclose(graph.mixing.sum(axis=0), 1)
    assert (graph.mixing.diagonal() > 0).all()
    mixed = np.linalg.matrix_power(graph.mixing, 3000)
    np.testing.assert_allclose(mixed, 1 / count, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "num_nodes", "message"),
    [
        ("edges([[0, 1], [2, 3]])", 4, "not connected: no path leads from node 0 to node 2"),
        ("edges([[0, 1]])", 3, "to node 2"),
        ("edges([])", 2, "to node 1"),
        ("edges([[0, 3], [0, 1]])", 3, r"the edge \[0, 3\]"),
        ("edges([[1, 1], [0, 1]])", 2, r"the edge \[1, 1\]; two different nodes"),
        ("edges([[0, 1], [1, 0]])", 2, r"the edge \[0, 1\] comes twice"),
        ("edges([[0, 1, 2]])", 3, "a list of pairs of nodes"),
        ("edges([[0, 1.5]])", 3, "the node of an edge is 1.5"),
        ("edges([0, 1])", 3, "a list of pairs"),
        ("edges(7)", 3, "a list of pairs"),
        ("ring()", 1, "num_nodes is 1"),
        ("complete()", 0, "num_nodes is 0"),
        ("torus(rows=5)", 12, "a torus of 5 rows needs a multiple of 5"),
        ("torus(rows=-1)", 12, "rows is -1"),
        ("torus()", 0, "num_nodes is 0"),
        ("star()", 4, "unknown topology 'star'; there are: complete, edges, exponential, ring, torus"),
        ("ring", 10**9, "num_nodes is 1000000000"),
    ],
)
def test_impossible_graphs_are_refused_in_one_sentence(text: str, num_nodes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_topology(text, num_nodes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("edge", [(1, 2.0), (0, 1, 2), ()])
def test_edges_that_are_no_pairs_of_nodes_are_refused(edge: Any) -> None:
    with pytest.raises(ValueError, match="two different nodes, 0 to 2, are needed"):
        Topology(3, ((0, 1), edge))


def test_every_topology_is_named_in_the_table() -> None:
    assert {text.partition("(")[0] for text in MADE} | {"edges"} == set(TOPOLOGIES)
