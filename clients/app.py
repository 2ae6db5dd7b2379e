"""The ClientApp: trains and evaluates the server's model on the node's own samples.

`CompressionMod` compresses the traffic: this code sees plain arrays, as it would without it.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from clients import training_state
from clients.devices import pick_device, seed_torch
from clients.local import LocalPlan
from clients.local import train as train_locally
from clients.plug_ins import check_plug_ins, learning_rate, training_plan
from clients.samples import has_own_samples, node_number, own_card, own_samples, partition_of
from fedcomp.core import parse_setting
from fedcomp.data import Card
from fedcomp.flower import GROWTH, CompressionMod, to_record
from fedcomp.flower.split import SplitClient
from fedcomp.split import cut
from fedcomp.tasks import build_model, input_shape
from fedcomp.tasks import evaluate as evaluate_model
from fedcomp.training import parse

EVALUATION_BATCH = 1000


def first_model(context: Context) -> ArrayRecord:
    """Return the model of the run's seed, as the server makes it: nobody needs to send it."""
    run = context.run_config
    card = own_card(str(run["dataset"]))
    seed = int(run["seed"])
    model = build_model(str(run["model"]), input_shape(card), card.num_classes, seed)
    return to_record(parse(str(run["training"])).prepare(model, seed).state_dict())


app = ClientApp(mods=[CompressionMod(start=first_model)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the weights after local training, the number of samples and their mean loss during it."""
    run, config = context.run_config, message.content.config_records["config"]
    device = _device(run)
    x, y = own_samples(run, context.node_config, device)
    model = _model(message, run, device)
    number = node_number(run, context.node_config, context.node_id)
    momentum, server_round = str(run["client-momentum"]), int(str(config["server-round"]))
    rng = np.random.default_rng([int(run["seed"]), server_round, number])
    plan = LocalPlan(
        epochs=int(run["local-epochs"]),
        steps=int(run["local-steps"]),
        batch_size=int(run["batch-size"]),
        learning_rate=learning_rate(run, server_round),
        momentum=float(run["momentum"]),
        weight_decay=float(run["weight-decay"]),
        training=training_plan(run, config),
        optimizer=str(run["optimizer"]),
    )
    seed = int(rng.integers(2**63))
    seed_torch(seed, device)  # for models with random parts, such as dropout
    state = training_state.load(context.state, plan, momentum, server_round)
    trained = train_locally(model, x, y, plan, rng, state, seed=seed ^ 1)  # plug-ins draw other numbers
    training_state.save(context.state, trained.state, momentum, server_round)
    report = {GROWTH: to_record(trained.report)} if config.get(GROWTH) else {}
    metrics = weights_of(run, len(y)) | {"train-loss": trained.loss}
    return _reply(message, metrics, arrays=to_record(model.state_dict()), **report)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return loss and accuracy of the published model on the node's own training samples."""
    run = context.run_config
    device = _device(run)
    x, y = own_samples(run, context.node_config, device)
    model = parse(str(run["training"])).inference(_model(message, run, device))
    loss, accuracy = evaluate_model(model, x, y, EVALUATION_BATCH)
    return _reply(message, weights_of(run, len(y)) | {"eval-loss": loss, "eval-accuracy": accuracy})


@app.query("partition")
def report_partition(message: Message, context: Context) -> Message:
    """Return the node's partition, by which the server orders its nodes, and the number of partitions.

    A node with samples of its own needs no partition, and reports their number.  A node that cannot take part replies
    with the reason, which the server logs; an exception would be a traceback on every node.
    """
    run, node = context.run_config, context.node_config
    try:
        pick_device(str(run.get("device", "auto")))  # or the reason why it is refused
        if training := str(run.get("training", "")):
            card = own_card(str(run["dataset"]))
            model, shape = _module(str(run["model"]), training, card, _device(run)), input_shape(card)
            parse_setting("training", training, lambda text: check_plug_ins(text, model, shape))
        if not has_own_samples(run):
            number, count = partition_of(node)
            return _reply(message, {"partition-id": number, "num-partitions": count})
        _, y = own_samples(run, node, torch.device("cpu"))
    except ValueError as error:
        return Message(RecordDict({"refused": ConfigRecord({"reason": str(error)})}), reply_to=message)
    partition = {key: int(value) for key, value in node.items() if key == "partition-id"}
    return _reply(message, {"num-examples": len(y), **partition})


@app.query("split")
@SplitClient
def split_start(context: Context) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return the lower part of the run's model, and the node's samples and labels."""
    run = context.run_config
    device = _device(run)
    x, y = own_samples(run, context.node_config, device)
    card = own_card(str(run["dataset"]))
    model = build_model(str(run["model"]), input_shape(card), card.num_classes, int(str(run["seed"])))
    lower, _ = cut(model, str(run["split-layer"]))
    return lower.to(device), x, y


def weights_of(run: Mapping[str, object], num_examples: int) -> dict[str, int | float]:
    """Return the metrics that a strategy may weigh this node by: its examples, and 1 if all nodes count the same."""
    return {"num-examples": num_examples, **({"uniform-weight": 1} if run["weighting"] == "uniform" else {})}


def _device(run: Mapping[str, object]) -> torch.device:
    threads = int(str(run["num-threads"]))
    if threads and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    return pick_device(str(run["device"]))


def _model(message: Message, run: Mapping[str, object], device: torch.device) -> nn.Module:
    model = _module(str(run["model"]), str(run["training"]), own_card(str(run["dataset"])), device)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return model


@lru_cache(maxsize=1)
def _module(name: str, training: str, card: Card, device: torch.device) -> nn.Module:
    """Return the model with any weights: a message replaces them all, so a process builds it once."""
    model = build_model(name, input_shape(card), card.num_classes, seed=0)
    return parse(training).prepare(model, seed=0).to(device)


def _reply(message: Message, metrics: Mapping[str, int | float], **records: ArrayRecord) -> Message:
    return Message(RecordDict({"metrics": MetricRecord(dict(metrics)), **records}), reply_to=message)
