"""The ClientApp's evaluation, called without a server."""

from typing import Any

import pytest
import torch
from flwr.app import Context, Message, MessageType, RecordDict

from clients.app import app, evaluate
from clients.samples import own_samples
from fedcomp.flower import LocalGrid, to_record
from fedcomp.tasks import build_model
from fedcomp.tasks import evaluate as evaluate_model
from fedcomp.training import quantized

NODE = {"partition-id": 1, "num-partitions": 4}


@pytest.mark.parametrize("training", ["", "fedprox(0.1)", "quantized('ternary')"])
def test_a_node_evaluates_the_model_as_it_is_meant_to_be_used(config: dict[str, Any], training: str) -> None:
    run = config | {"training": training, "model": "mlp"}
    model = build_model("mlp", (1, 8, 8), 10, 5)
    x, y = own_samples(run, NODE, torch.device("cpu"))
    latent, rounded = (evaluate_model(each, x, y, 1000) for each in (model, quantized("ternary").inference(model)))
    assert latent != rounded
    arrays = to_record({name: weight.numpy() for name, weight in model.state_dict().items()})
    LocalGrid(app, 1, run)  # messages need a run
    message = Message(RecordDict({"arrays": arrays}), dst_node_id=1, message_type=MessageType.EVALUATE)
    reply = evaluate(message, Context(1, 1, {**NODE}, RecordDict(), run))
    metrics = reply.content.metric_records["metrics"]
    assert (metrics["eval-loss"], metrics["eval-accuracy"]) == (rounded if "quantized" in training else latent)
