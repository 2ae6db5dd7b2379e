"""Train without a server: nodes on a graph, several ways to exchange models, and partitions; one line for each of them.

    python -m experiments.gossip --rounds 100

--out writes all evaluated rounds to a CSV file. Everything runs in this process and is the same each time.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.local import LocalPlan, train
from clients.samples import Samples, own_card, own_samples
from experiments.options import positive
from experiments.results import write_text
from fedcomp.core import check_range, parse_setting
from fedcomp.data import Card, DataError, load
from fedcomp.gossip import (
    Choco,
    DeepSqueeze,
    Network,
    Topology,
    find_step_size,
    parse_method,
    parse_topology,
    quasi_global_momentum,
)
from fedcomp.tasks import build_model, evaluate, input_shape, prepare

PARTITIONS = ("skewed(0)", "skewed(0.6)", "skewed(0.8)")
METHODS = (
    "choco(dense())",
    "choco(eden(bits=2))",
    "choco(topk(density=0.05, feedback=False))",
    "deep_squeeze(topk(density=0.1))",
)
REFUSED = 2
MAX_MOMENTUM = 0.9999
BATCH = 1000
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """An evaluated round: the accuracies of the mean model and of the worst node's, 0 to 1, and the bytes since the start."""

    partition: str
    method: str
    round: int
    accuracy: float
    worst_accuracy: float
    consensus_distance: float
    sent_bytes: int
    dense_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """What the nodes learn, and how they train in a round."""

    card: Card
    model_name: str
    test: Samples
    plan: LocalPlan
    rounds: int
    evaluate_every: int
    quasi_global: bool


def run(
    task: Task, method: Choco | DeepSqueeze, topology: Topology, shares: Sequence[Samples], partition: str
) -> Iterator[Row]:
    """Train, each node on its own of the `shares`; yield the evaluated rounds, the last one among them."""
    model = build_model(task.model_name, input_shape(task.card), task.card.num_classes, 0)
    first = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    network = Network(topology, first, method)
    rngs = [np.random.default_rng([1, node]) for node in range(topology.num_nodes)]
    kept = [dict[str, Mapping[str, Tensor]]() for _ in rngs]
    momenta = [Arrays() for _ in rngs]
    sent_bytes = dense_bytes = 0
    for number in range(1, task.rounds + 1):
        trained: list[Arrays] = []
        before = [network.model(node) for node in range(topology.num_nodes)]
        for node, (x, y) in enumerate(shares):
            _load(model, before[node])
            kept[node] = train(model, x, y, task.plan, rngs[node], kept[node]).state
            trained.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
        exchanged = network.exchange(trained)
        if task.quasi_global:
            momenta = [
                _quasi_global(task.plan, each, network.model(node), momenta[node]) for node, each in enumerate(before)
            ]
            kept = [
                {"momentum": {name: torch.from_numpy(array.copy()) for name, array in each.items()}} for each in momenta
            ]
        sent_bytes, dense_bytes = sent_bytes + exchanged.sent_bytes, dense_bytes + exchanged.dense_bytes
        if number % task.evaluate_every == 0 or number == task.rounds:
            accuracies = []
            for arrays in (network.mean_model, *(network.model(node) for node in range(topology.num_nodes))):
                _load(model, arrays)
                accuracies.append(evaluate(model, *task.test, BATCH)[1])
            mean, worst = accuracies[0], min(accuracies[1:])
            yield Row(partition, str(method), number, mean, worst, network.consensus_distance, sent_bytes, dense_bytes)


def _quasi_global(plan: LocalPlan, before: Arrays, after: Arrays, momentum: Arrays) -> Arrays:
    settings = {"decay": plan.momentum, "learning_rate": plan.learning_rate}
    return quasi_global_momentum(momentum, before, after, **settings, steps=plan.steps)


def _load(model: torch.nn.Module, arrays: Arrays) -> None:
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each partition and method; return 2 for settings that do not fit, before anything is trained."""
    options = _options(arguments)
    torch.set_num_threads(1)
    try:
        topology = parse_setting("topology", options.topology, lambda text: parse_topology(text, options.nodes))
        methods = [_method(text, topology) for text in options.methods]
        card = own_card(options.dataset)
        test = load(card, options.data_dir or None).test
        shares = {partition: _shares(options, partition) for partition in options.partitions}
        build_model(options.model, input_shape(card), card.num_classes, 0)
        check_range("--learning-rate", options.learning_rate, above=0)
        check_range("--momentum", options.momentum, least=0, most=MAX_MOMENTUM)
        if options.quasi_global and not options.momentum:
            raise ValueError("--quasi-global is given, and --momentum is 0; a momentum above 0 is needed")
        if options.out and not options.out.absolute().parent.is_dir():
            raise ValueError(f"--out is {str(options.out)!r}; there is no such folder")
    except (ValueError, DataError) as error:
        print(f"python -m experiments.gossip: {error}", file=sys.stderr)
        return REFUSED
    plan = LocalPlan(1, options.steps, options.batch_size, options.learning_rate, options.momentum, 0.0)
    samples = prepare(test.x, card, "cpu"), torch.tensor(test.y)
    task = Task(card, options.model, samples, plan, options.rounds, options.evaluate_every, options.quasi_global)
    print(
        f"{options.nodes} nodes, {options.topology}, spectral gap {topology.spectral_gap:.3f}; {options.rounds} rounds\n"
    )
    print(f"{'partition':<14}{'method':<62}{'mean':>7}{'worst':>7}{'distance':>10}{'fewer bytes':>12}")
    rows: list[Row] = []
    for partition in options.partitions:
        for method in methods:
            rows += run(task, method, topology, shares[partition], partition)
            last = rows[-1]
            ratio = last.dense_bytes / last.sent_bytes
            accuracies = f"{100 * last.accuracy:>7.1f}{100 * last.worst_accuracy:>7.1f}"
            print(
                f"{partition:<14}{method!s:<62}{accuracies}{last.consensus_distance:>10.3f}{ratio:>11.1f}x", flush=True
            )
            if options.out:
                write_text(options.out, pd.DataFrame(map(asdict, rows)).to_csv(index=False))
    return 0


def _method(text: str, topology: Topology) -> Choco | DeepSqueeze:
    """Return the method of a text, with a step size that is found if the text names none."""
    method = parse_setting("method", text, parse_method)
    return method if "step_size" in text else find_step_size(topology, method)


def _shares(options: argparse.Namespace, partition: str) -> list[Samples]:
    run_config = {"dataset": options.dataset, "data-dir": options.data_dir, "partition": partition, "seed": 0}
    nodes = ({"partition-id": node, "num-partitions": options.nodes} for node in range(options.nodes))
    return [own_samples(run_config, node, torch.device("cpu")) for node in nodes]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.gossip", description="Train without a server.")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", default="", help="the folder of the dataset's files; digits needs none")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--nodes", type=positive, default=8)
    parser.add_argument(
        "--topology", default="ring()", help="ring(), torus(), exponential(), complete() or edges([[0, 1], ...])"
    )
    parser.add_argument("--partitions", nargs="+", default=PARTITIONS, metavar="PARTITION")
    parser.add_argument(
        "--methods", nargs="+", default=METHODS, metavar="METHOD", help="a step_size that is not named is found"
    )
    parser.add_argument("--rounds", type=positive, default=100)
    parser.add_argument("--evaluate-every", type=positive, default=10)
    parser.add_argument("--steps", type=positive, default=2, help="local steps in a round")
    parser.add_argument("--batch-size", type=positive, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--quasi-global", action="store_true", help="take the momentum from what mixing did, too")
    parser.add_argument("--out", type=Path, help="a CSV file for all evaluated rounds")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
