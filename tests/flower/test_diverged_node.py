"""A node whose training diverges once, to infinity or to a number that no server takes, loses that round and no other."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.errors import DivergedError
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.sync import Subscriber, start_replica
from fedcomp.wire import layout_of
from tests.flower.toy import Arrays, arrays_of, state_of, training

ROUNDS = 12


@pytest.mark.parametrize(
    "uplink", ["topk(density=0.1)", "stc(density=0.1)", "dgc(density=0.1)", "eden(bits=1)", "dense()"]
)
@pytest.mark.parametrize(
    ("dtype", "weight"),
    [("float32", 1e17), ("float32", -3e38), ("float32", np.inf), ("float16", 70000), ("float64", 1e300)],
)
def test_only_the_round_in_which_training_diverged_is_lost(dtype: str, weight: float, uplink: str) -> None:
    def change(arrays: Arrays, context: Context, server_round: int) -> Arrays:
        trained = arrays["w"].astype(np.float64 if dtype == "float64" else np.float32) + 1
        if (context.node_id, server_round) == (1, 2):
            trained[:5] = weight
        return {"w": trained}

    inner = FedAvg(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
    grid = LocalGrid(training(change), 3)
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(100, dtype))}), num_rounds=ROUNDS)
    traffic = strategy.ledger.by_node()
    assert [(traffic[node].refused, traffic[node].failed) for node in (1, 2, 3)] == [(0, 1), (0, 0), (0, 0)]
    assert np.abs(arrays_of(strategy.arrays)["w"]).max() < 100
    for array in state_of(grid.contexts[1]).memory.values():
        assert array.dtype.kind != "f" or np.abs(array.astype(np.float64)).max(initial=0) < 100


@pytest.mark.parametrize("as_torch", [False, True])
def test_a_weight_beyond_what_a_server_takes_is_named_on_the_node(as_torch: bool) -> None:
    first: Arrays = {
        "small": np.ones(3, np.float32),
        "large": np.full(2, 2e15, np.float32),
        "half": np.ones(2, np.float16),
    }
    node = Subscriber(start_replica(layout_of(first), first))

    def learned(**trained: object) -> None:
        arrays = {name: np.asarray(trained.get(name, array)) for name, array in first.items()}
        node.learned({name: torch.from_numpy(array) for name, array in arrays.items()} if as_torch else arrays)

    learned(large=np.full(2, -1.9e15, np.float32), small=np.full(3, -1e15, np.float32))
    with pytest.raises(DivergedError, match=r"training has diverged: .* weight of 1\.1e\+15 in tensor 'small'"):
        learned(small=np.array([1, 1.1e15, 1], np.float32))
    with pytest.raises(DivergedError, match=r"weight of -2\.2e\+15 in tensor 'large'"):
        learned(large=np.full(2, -2.2e15, np.float32))
    with pytest.raises(DivergedError, match=r"weight of 70000 in tensor 'half'; at most 65504"):
        learned(half=np.full(2, 70000, np.float32))
