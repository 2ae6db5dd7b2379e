"""Tensors that no node of a graph trained keep their bits under every compressor, and cost nothing."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.gossip import Choco, DeepSqueeze, Method, Network, parse_topology
from fedcomp.methods import METHODS

NODES, ROUNDS = 4, 3


def accepted(kind: Callable[..., Method]) -> list[Method]:
    """Return the ways of this kind with every compressor that it takes, with and without feedback."""
    methods: list[Method] = []
    for name in METHODS:
        for text in (f"{name}()", f"{name}(feedback=False)"):
            with suppress(ValueError):  # tests of the kinds say which are refused
                methods.append(kind(fedcomp.parse(text), step_size=0.1))
    return methods


ALL = {str(method): method for kind in (Choco, DeepSqueeze) for method in accepted(kind)}


def first_model() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    frozen = rng.standard_normal((30, 20), np.float32)
    frozen[0, :3] = -0.0, 0.0, 1e-40
    return {"base": frozen, "head": rng.standard_normal((10, 20), np.float32), "scale": np.full((), -0.0, np.float32)}


def test_many_compressors_are_accepted() -> None:
    assert len(ALL) > 20


@pytest.mark.parametrize("method", ALL.values(), ids=ALL)
def test_no_compressor_moves_a_tensor_that_no_node_trained(method: Method) -> None:
    network = Network(parse_topology("ring()", NODES), first_model(), method)
    for turn in range(ROUNDS):
        models = [network.model(node) for node in range(NODES)]
        for node, model in enumerate(models):
            model["head"] += np.random.default_rng([turn, node]).standard_normal((10, 20)).astype(np.float32) * 0.1
        network.exchange(models)
    for node in range(NODES):
        model = network.model(node)
        for name in ("base", "scale"):
            assert model[name].tobytes() == first_model()[name].tobytes()
        assert model["head"].tobytes() != first_model()["head"].tobytes()


def test_a_tensor_that_one_node_alone_trained_is_mixed_with_what_the_others_started_from() -> None:
    """Node 0 moves `base` by 1; the mean of all four moves by 1/4, and stays there."""
    network = Network(
        parse_topology("ring()", NODES), first_model(), DeepSqueeze(fedcomp.topk(density=0.5), step_size=0.1)
    )
    start = first_model()["base"]
    for turn in range(100):
        models = [network.model(node) for node in range(NODES)]
        if not turn:
            models[0]["base"] = models[0]["base"] + np.float32(1)
        network.exchange(models)
    bases = [network.model(node)["base"] for node in range(NODES)]
    np.testing.assert_allclose(np.mean(bases, axis=0), start + np.float32(0.25), atol=1e-5)
    np.testing.assert_allclose(bases[2], start + np.float32(0.25), atol=0.15)
    assert network.model(3)["head"].tobytes() == first_model()["head"].tobytes()


def test_a_tensor_that_a_neighbor_did_not_send_is_the_one_that_it_started_from() -> None:
    """Node 0 moves `base` by 1 and sends it exactly; its neighbour moves by the weight of the edge times the step size."""
    topology = parse_topology("ring()", NODES)
    network = Network(topology, first_model(), DeepSqueeze(fedcomp.topk(density=1), step_size=0.1))
    models = [network.model(node) for node in range(NODES)]
    models[0]["base"] = models[0]["base"] + np.float32(1)
    network.exchange(models)
    moved = network.model(1)["base"] - first_model()["base"]
    np.testing.assert_allclose(moved, 0.1 * topology.weights(1)[0], atol=1e-6)
