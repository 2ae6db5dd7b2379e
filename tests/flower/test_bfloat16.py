"""bfloat16 models: Flower cannot carry torch's tensors, but their words train like any other model."""

from typing import cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from fedcomp.wire import BFLOAT16

ALL = {"fraction_evaluate": 0.0}


def words(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)


def tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.numpy().view(np.int16).copy()).view(torch.bfloat16)


def training() -> ClientApp:
    """Return an app that adds 2^-7 to each weight, which are bfloat16 in torch."""
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        w = tensor(cast(ArrayRecord, message.content["arrays"])["w"])
        arrays = ArrayRecord({"w": Array(words(w + 2.0**-7))})
        return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def test_flower_itself_refuses_a_torch_tensor_of_bfloat16() -> None:
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord({"w": torch.ones(2, dtype=torch.bfloat16)})


@pytest.mark.parametrize("inner", [FedAvg(**ALL), FedMedian(**ALL), FedAdam(**ALL)])  # type: ignore[arg-type]
def test_a_bfloat16_model_trains_and_keeps_its_dtype(inner: Strategy) -> None:
    initial = torch.full((4, 4), 1.0, dtype=torch.bfloat16)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.topk(density=0.5))
    strategy.start(LocalGrid(training(), 3), ArrayRecord({"w": Array(words(initial))}), num_rounds=4)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    final = tensor(strategy.arrays["w"])
    assert final.dtype == torch.bfloat16
    if not isinstance(inner, FedAdam):
        moved = strategy.publisher.replica.vector - 1 + strategy.publisher.memory["residual"]
        np.testing.assert_allclose(moved, 4 * 2.0**-7, rtol=1e-6)
        assert torch.equal(final, torch.from_numpy(strategy.publisher.replica.vector).reshape(4, 4).to(torch.bfloat16))
