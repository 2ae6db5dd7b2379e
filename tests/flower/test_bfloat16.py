"""bfloat16 models: Flower cannot carry torch's tensors, but their words train like any other model."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.wire import BFLOAT16
from tests.flower.toy import training

ALL = {"fraction_evaluate": 0.0}


def words(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)


def test_flower_itself_refuses_a_torch_tensor_of_bfloat16() -> None:
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord({"w": torch.ones(2, dtype=torch.bfloat16)})


@pytest.mark.parametrize("inner", [FedAvg(**ALL), FedMedian(**ALL), FedAdam(**ALL)])  # type: ignore[arg-type]
def test_a_bfloat16_model_trains_and_keeps_its_dtype(inner: Strategy) -> None:
    initial = torch.full((4, 4), 1.0, dtype=torch.bfloat16)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.topk(density=0.5))
    app = training(lambda given, context, _: {"w": words(tensor(given["w"]) + 2.0**-7)})
    strategy.start(LocalGrid(app, 3), ArrayRecord({"w": Array(words(initial))}), num_rounds=4)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    final = tensor(strategy.arrays["w"].numpy())
    assert final.dtype == torch.bfloat16
    if not isinstance(inner, FedAdam):
        moved = strategy.publisher.replica.vector - 1 + strategy.publisher.memory["residual"]
        np.testing.assert_allclose(moved, 4 * 2.0**-7, rtol=1e-6)
        assert torch.equal(final, torch.from_numpy(strategy.publisher.replica.vector).reshape(4, 4).to(torch.bfloat16))
