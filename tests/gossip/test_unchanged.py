"""Tensors that no node of a graph trained keep their bits under every compressor, and cost nothing."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.gossip import Choco, Network, parse_topology
from fedcomp.methods import METHODS

NODES, ROUNDS = 4, 5
COMPRESSORS = [name for name in METHODS if name not in ("auto", "balanced") and not fedcomp.parse(name).init(1)]
FEEDBACK = [
    name for name in METHODS if fedcomp.parse(name).memory.vectors and "feedback" in dict(fedcomp.parse(name).settings)
]
TEXTS = [*COMPRESSORS, *(f"{name}(feedback=False)" for name in FEEDBACK)]


def first_model() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    frozen = rng.standard_normal((30, 20), np.float32)
    frozen[0, :3] = -0.0, 0.0, 1e-40
    return {"base": frozen, "head": rng.standard_normal((10, 20), np.float32), "scale": np.full((), -0.0, np.float32)}


@pytest.mark.parametrize("text", TEXTS)
def test_no_compressor_moves_a_tensor_that_no_node_trained(text: str) -> None:
    network = Network(parse_topology("ring()", NODES), first_model(), Choco(fedcomp.parse(text), step_size=0.1))
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
