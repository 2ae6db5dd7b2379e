"""The ClientApp: trains and evaluates the model it is sent on the node's own samples.

What crosses the network is `CompressionMod`'s matter: this code sees plain arrays, as without it.
"""

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from clients.devices import pick_device
from clients.local import LocalPlan
from clients.local import train as train_locally
from clients.samples import own_card, own_samples, partition_of
from fedcomp.flower import CompressionMod
from fedcomp.tasks import build_model, input_shape
from fedcomp.tasks import evaluate as evaluate_model

EVALUATION_BATCH = 1000

app = ClientApp(mods=[CompressionMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the weights after local training, the number of samples and their mean loss on the way."""
    run, config = context.run_config, _config(message)
    device = _device(context)
    x, y = own_samples(run, context.node_config, device)
    model = _model(message, context, device)
    number, _ = partition_of(context.node_config)
    rng = np.random.default_rng([int(run["seed"]), int(str(config["server-round"])), number])
    plan = LocalPlan(
        epochs=int(run["local-epochs"]),
        steps=int(run["local-steps"]),
        batch_size=int(run["batch-size"]),
        learning_rate=float(run["learning-rate"]),
        momentum=float(run["momentum"]),
        weight_decay=float(run["weight-decay"]),
        proximal_mu=float(str(config.get("proximal-mu", 0.0))),
    )
    torch.manual_seed(int(rng.integers(2**63)))  # for models that draw, as dropout does
    loss = train_locally(model, x, y, plan, rng)
    weights = ArrayRecord({name: tensor.cpu() for name, tensor in model.state_dict().items()})
    return _reply(message, {"num-examples": len(y), "train-loss": loss}, weights)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return loss and accuracy of the published model on the node's own training samples."""
    device = _device(context)
    x, y = own_samples(context.run_config, context.node_config, device)
    loss, accuracy = evaluate_model(_model(message, context, device), x, y, EVALUATION_BATCH)
    return _reply(message, {"num-examples": len(y), "eval-loss": loss, "eval-accuracy": accuracy})


def _device(context: Context) -> torch.device:
    threads = int(context.run_config["num-threads"])
    if threads:
        torch.set_num_threads(threads)
    return pick_device(str(context.run_config["device"]))


def _config(message: Message) -> ConfigRecord:
    config = message.content["config"]
    if not isinstance(config, ConfigRecord):
        raise TypeError(f"the message's 'config' is a {type(config).__name__}; a ConfigRecord is needed")
    return config


def _model(message: Message, context: Context, device: torch.device) -> nn.Module:
    arrays = message.content["arrays"]
    if not isinstance(arrays, ArrayRecord):
        raise TypeError(f"the message's 'arrays' is a {type(arrays).__name__}; an ArrayRecord is needed")
    run = context.run_config
    card = own_card(run)
    model = build_model(str(run["model"]), input_shape(card), card.num_classes, int(run["seed"]))
    model.load_state_dict(arrays.to_torch_state_dict())
    return model.to(device)


def _reply(
    message: Message, metrics: dict[str, int | float | list[int] | list[float]], arrays: ArrayRecord | None = None
) -> Message:
    content = RecordDict({"metrics": MetricRecord(metrics)})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content=content, reply_to=message)
