"""Train a model that is cut in two: several ways to send activations, and federated training; one line for each of them.

    python -m experiments.split

--out writes all evaluated rounds to a CSV file. Everything runs in this process and is the same each time.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import ERROR, getLogger

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from clients.local import LocalPlan, train
from clients.samples import Samples
from experiments.command import (
    BATCH,
    Row,
    add_training,
    check_out,
    command,
    load_test,
    new_parser,
    positive,
    samples_of,
    save,
    usage,
)
from fedcomp.compressor import Compressor
from fedcomp.core import build, parse_setting
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from fedcomp.flower.split import LowerParts, SplitClient, SplitTraining
from fedcomp.methods import METHODS as COMPRESSORS
from fedcomp.methods import parse
from fedcomp.split import SplitSettings, cut
from fedcomp.tasks import build_model, evaluate, input_shape

METHODS = (
    "change(dense(), backward=dense())",
    "direct(cgx(bits=4))",
    "direct(cgx(bits=3))",
    "direct(cgx(bits=2))",
    "change(cgx(bits=4))",
    "change(cgx(bits=3))",
    "change(cgx(bits=2))",
    "federated(stc(density=0.02))",
)
PRETRAIN_RATE = 0.1
SIZES = ("uplink_bytes", "downlink_bytes", "first_bytes", "weight_bytes", "dense_bytes")
"""The bytes since the start, in a row of an evaluated round."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """What the nodes learn, each from its own of the `shares`."""

    make_model: Callable[[], nn.Module]
    layer: str
    shares: Sequence[Samples]
    test: Samples
    settings: SplitSettings
    lower_parts: LowerParts
    rounds: int
    evaluate_every: int

    def is_evaluated(self, number: int) -> bool:
        """Return whether a round is evaluated; the last one is."""
        return number % self.evaluate_every == 0 or number == self.rounds

    def samples(self, context: Context) -> Samples:
        """Return the samples of the node with this context."""
        return self.shares[int(context.node_config["partition-id"])]


@dataclass(frozen=True, slots=True)
class SplitMethod:
    """Split training with compressors of its own."""

    forward: Compressor
    backward: Compressor
    direct: bool

    def run(self, task: SplitTask, name: str) -> Iterator[Row]:
        """Train, and yield the evaluated rounds."""
        settings = replace(task.settings, forward=self.forward, backward=self.backward, direct=self.direct)
        model = task.make_model()
        lower, upper = cut(model, task.layer)
        app = ClientApp()
        node_lower, _ = cut(task.make_model(), task.layer)
        app.query("split")(SplitClient(lambda context: (node_lower, *task.samples(context))))
        grid = LocalGrid(app, len(task.shares))
        training = SplitTraining(lower, upper, task.test[0][:1], settings, lower_parts=task.lower_parts)
        for number in range(1, task.rounds + 1):
            training.run(grid, num_rounds=1)
            if task.is_evaluated(number):
                accuracy, traffic = evaluate(model, *task.test, BATCH)[1], training.traffic
                sizes = {key: getattr(traffic, key) for key in SIZES}
                yield {"method": name, "round": number, "accuracy": accuracy, **sizes}


@dataclass(frozen=True, slots=True)
class Federated:
    """Federated averaging of the whole model, compressed both ways."""

    compressor: Compressor

    def run(self, task: SplitTask, name: str) -> Iterator[Row]:
        """Train on the same samples, for as many steps in a round, and yield the evaluated rounds."""
        settings, model = task.settings, task.make_model()
        plan = LocalPlan(1, settings.steps, settings.batch_size, settings.learning_rate, settings.momentum, 0.0)
        app = ClientApp(mods=[CompressionMod()])

        @app.train()
        def train_node(message: Message, context: Context) -> Message:
            model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
            number = int(str(message.content.config_records["config"]["server-round"]))
            x, y = task.samples(context)
            rng = np.random.default_rng([number, int(context.node_config["partition-id"])])
            train(model, x, y, plan, rng)
            metrics = MetricRecord({"num-examples": len(y)})
            content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
            return Message(content, reply_to=message)

        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=self.compressor, downlink=self.compressor)
        accuracies: dict[int, float] = {}

        def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
            if task.is_evaluated(number):
                model.load_state_dict(arrays.to_torch_state_dict())
                accuracies[number] = evaluate(model, *task.test, BATCH)[1]
            return MetricRecord({})

        grid, first = LocalGrid(app, len(task.shares), in_memory=True), ArrayRecord(task.make_model().state_dict())
        strategy.start(grid, first, num_rounds=task.rounds, evaluate_fn=measure)
        up = down = dense = 0
        for number, traffic in sorted(strategy.ledger.by_round().items()):
            up, down = up + traffic.uplink_bytes, down + traffic.downlink_bytes
            dense += traffic.dense_bytes
            if number and task.is_evaluated(number):
                sizes = zip(SIZES, (up, down, 0, up + down, dense), strict=True)
                yield {"method": name, "round": number, "accuracy": accuracies[number], **dict(sizes)}


def change(forward: str, backward: str = "cgx(bits=8)") -> SplitMethod:
    """Send the change of activations."""
    return SplitMethod(parse(forward), parse(backward), direct=False)


def direct(forward: str, backward: str = "cgx(bits=8)") -> SplitMethod:
    """Send activations themselves."""
    return replace(change(forward, backward), direct=True)


def federated(compressor: str) -> Federated:
    """Send the whole model's updates."""
    return Federated(parse(compressor))


MAKERS: Mapping[str, Callable[..., SplitMethod | Federated]] = {
    make.__name__: make for make in (change, direct, federated)
}


def run(options: argparse.Namespace) -> None:
    """Print a line for each method."""
    torch.set_num_threads(1)
    with usage():
        build_method = partial(build, makers=MAKERS, noun="method", nested=COMPRESSORS)
        methods = {text: parse_setting("method", text, build_method) for text in options.methods}
        task = _task(options)
        for method in methods.values():
            if isinstance(method, SplitMethod):
                replace(task.settings, forward=method.forward, backward=method.backward)
        lower, upper = cut(task.make_model(), options.layer)
        shape = SplitTraining(lower, upper, task.test[0][:1]).shape
        check_out(options.out)
    getLogger("flwr").setLevel(ERROR)
    entries = " x ".join(map(str, shape))
    print(f"{options.nodes} nodes, {options.model} cut behind {options.layer!r}: {entries} activations a sample")
    print(f"accuracy at the start: {100 * evaluate(task.make_model(), *task.test, BATCH)[1]:.1f}\n")
    print(f"{'method':<38}{'accuracy':>9}{'up':>12}{'first':>12}{'down':>12}{'weights':>12}{'fewer bytes':>12}")
    rows: list[Row] = []
    for text, method in methods.items():
        rows += method.run(task, text)
        up, down, first, weights, dense = (rows[-1][key] for key in SIZES)
        megabytes = "".join(f"{each / 1e6:>9.2f} MB" for each in (up, first, down, weights))
        print(f"{text:<38}{100 * rows[-1]['accuracy']:>9.1f}{megabytes}{dense / (up + down):>11.1f}x", flush=True)
        save(rows, options.out)


def _task(options: argparse.Namespace) -> SplitTask:
    card, test = load_test(options.dataset, options.data_dir)
    shares = samples_of(options.dataset, options.data_dir, options.partition, options.seed, options.nodes)
    most = options.samples or max(len(y) for _, y in shares)
    shares = [(x[:most], y[:most]) for x, y in shares]
    model = build_model(options.model, input_shape(card), card.num_classes, options.seed)
    if options.pretrain:
        x, y = (torch.cat(parts) for parts in zip(*shares, strict=True))
        plan = LocalPlan(options.pretrain, 0, options.batch_size, PRETRAIN_RATE, 0.0, 0.0)
        train(model, x, y, plan, np.random.default_rng(options.seed))
    settings = SplitSettings(
        batch_size=options.batch_size,
        steps=options.steps,
        learning_rate=options.learning_rate,
        momentum=options.momentum,
    )
    return SplitTask(
        lambda: copy.deepcopy(model),
        options.layer,
        shares,
        test,
        settings,
        options.lower_parts,
        options.rounds,
        options.evaluate_every,
    )


PARSER = new_parser("python -m experiments.split", "Train a model that is cut in two.", model="cnn", partition="iid()")
add_training(PARSER, steps=12, batch_size=32)
PARSER.add_argument("--layer", default="2", help="the last layer of the lower part")
PARSER.add_argument("--nodes", type=positive, default=4)
PARSER.add_argument("--samples", type=positive, help="of each node, at most; all if it is left out")
PARSER.add_argument("--lower-parts", choices=("averaged", "in-turn"), default="averaged")
PARSER.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD")
PARSER.add_argument("--rounds", type=positive, default=12)
PARSER.add_argument("--evaluate-every", type=positive, default=4)
PARSER.add_argument("--momentum", type=float, default=0.0)
PARSER.add_argument("--pretrain", type=positive, help="epochs in one process before, with the samples of all nodes")
PARSER.add_argument("--seed", type=int, default=0)
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
