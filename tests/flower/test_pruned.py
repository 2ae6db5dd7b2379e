"""Weights that all nodes set to zero, as pruning does, are exactly zero on the server, as under plain Flower."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import Arrays, training

N = 3000
ON_ALL = np.random.default_rng(0).random(N) < 0.5
"""What all nodes prune; each node prunes others besides."""


def trained(strategy: Strategy, nodes: int, dtype: str, *, mod: bool = True) -> NDArray[Any]:
    """Return the model after three rounds in which nodes train for a step, and then prune."""

    def change(arrays: Arrays, context: Context, server_round: int) -> Mapping[str, Any]:
        rng = np.random.default_rng([context.node_id, server_round])
        stepped = arrays["w"] + rng.standard_normal(N) * 0.1
        return {"w": np.where(ON_ALL | (rng.random(N) < 0.1), 0, stepped).astype(dtype)}

    first = to_record({"w": np.random.default_rng(7).standard_normal(N).astype(dtype)})
    result = strategy.start(LocalGrid(training(change, 60, mod=mod), nodes), first, num_rounds=3)
    return result.arrays["w"].numpy()


@pytest.mark.parametrize("nodes", [3, 10])
@pytest.mark.parametrize("uplink", ["dense()", "topk(density=1.0, feedback=False)"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_all_nodes_prune_is_zero(nodes: int, uplink: str, dtype: str) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
    model = trained(strategy, nodes, dtype)
    assert not model[ON_ALL].any()
    plain = trained(FedAvg(fraction_evaluate=0.0), nodes, dtype, mod=False)
    np.testing.assert_array_equal(model == 0, plain == 0)
