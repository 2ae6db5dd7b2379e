"""Train without a server: nodes on a graph, several ways to train and to exchange models, and partitions; one line for each.

    python -m experiments.gossip --rounds 100

--out writes all evaluated rounds to a CSV file, which experiments.gossip_figure draws. Everything runs in this process and is
the same each time.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.local import LocalPlan, train
from clients.plug_ins import check_plug_ins
from clients.samples import Samples, own_card
from experiments.command import check_out, node_samples, positive, refuse, test_samples, write_rows
from fedcomp.core import check_range, parse_setting
from fedcomp.data import Card, DataError
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
from fedcomp.sync import derive_seed
from fedcomp.tasks import build_model, evaluate, input_shape
from fedcomp.training import parse

PARTITIONS = ("skewed(0)", "skewed(0.6)", "skewed(0.8)")
METHODS = (
    "choco(dense())",
    "choco(eden(bits=2))",
    "choco(topk(density=0.05, feedback=False))",
    "deep_squeeze(topk(density=0.1))",
)
MAX_MOMENTUM = 0.9999
BATCH = 1000
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class GossipRow:
    """An evaluated round: the accuracies of the mean model and of the worst node's, 0 to 1, and the bytes since the start."""

    partition: str
    training: str
    method: str
    seed: int
    round: int
    accuracy: float
    worst_accuracy: float
    consensus_distance: float
    sent_bytes: int
    dense_bytes: int


@dataclass(frozen=True, slots=True)
class GossipTask:
    """What the nodes learn from their `shares` of a partition, and how they train in a round."""

    card: Card
    model_name: str
    partition: str
    shares: Sequence[Samples]
    test: Samples
    plan: LocalPlan
    rounds: int
    evaluate_every: int
    quasi_global: bool
    seed: int


def run(task: GossipTask, method: Choco | DeepSqueeze, topology: Topology) -> Iterator[GossipRow]:
    """Train, each node on its own share; yield the evaluated rounds, the last one among them."""
    training = task.plan.training
    model = training.prepare(
        build_model(task.model_name, input_shape(task.card), task.card.num_classes, task.seed), task.seed
    )
    used = training.inference(model)
    first = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    network = Network(topology, first, method, task.seed)
    rngs = [np.random.default_rng([task.seed + 1, node]) for node in range(topology.num_nodes)]
    kept = [dict[str, Mapping[str, Tensor]]() for _ in rngs]
    momenta = [Arrays() for _ in rngs]
    sent_bytes = dense_bytes = 0
    for number in range(1, task.rounds + 1):
        trained: list[Arrays] = []
        before = [network.model(node) for node in range(topology.num_nodes)]
        for node, (x, y) in enumerate(task.shares):
            _load(model, before[node])
            plug_in_seed = derive_seed(task.seed, number, node)
            kept[node] = train(model, x, y, task.plan, rngs[node], kept[node], seed=plug_in_seed).state
            trained.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
        exchanged = network.exchange(trained)
        if task.quasi_global:
            momenta = [
                _quasi_global(task.plan, each, network.model(node), momenta[node]) for node, each in enumerate(before)
            ]
            kept = [
                {**state, "momentum": {name: torch.from_numpy(array.copy()) for name, array in each.items()}}
                for state, each in zip(kept, momenta, strict=True)
            ]
        sent_bytes, dense_bytes = sent_bytes + exchanged.sent_bytes, dense_bytes + exchanged.dense_bytes
        if number % task.evaluate_every == 0 or number == task.rounds:
            accuracies: list[float] = []
            for arrays in (network.mean_model, *(network.model(node) for node in range(topology.num_nodes))):
                _load(model, arrays)
                accuracies.append(evaluate(used, *task.test, BATCH)[1])
            mean, worst = accuracies[0], min(accuracies[1:])
            yield GossipRow(
                task.partition,
                str(training),
                str(method),
                task.seed,
                number,
                mean,
                worst,
                network.consensus_distance,
                sent_bytes,
                dense_bytes,
            )


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
        methods = [parse_setting("method", text, parse_method) for text in options.methods]
        card = own_card(options.dataset)
        test = test_samples(card, options.data_dir)
        shares = {
            (partition, seed): node_samples(options, partition, seed)
            for partition in options.partitions
            for seed in range(options.seeds)
        }
        plans = [parse_setting("training", text, parse) for text in options.training]
        for text in options.training:
            check_plug_ins(text, build_model(options.model, input_shape(card), card.num_classes, 0), input_shape(card))
        check_range("--learning-rate", options.learning_rate, above=0)
        check_range("--momentum", options.momentum, least=0, most=MAX_MOMENTUM)
        if options.quasi_global and not options.momentum:
            raise ValueError("--quasi-global is given, and --momentum is 0; a momentum above 0 is needed")
        check_out(options.out)
        found = {
            (str(training), method): _with_step_size(
                topology,
                training.prepare(build_model(options.model, input_shape(card), card.num_classes, 0), 0),
                method,
            )
            for training, method in product(plans, methods)
        }
    except (ValueError, DataError) as error:
        return refuse("gossip", error)
    print(
        f"{options.nodes} nodes, {options.topology}, spectral gap {topology.spectral_gap:.3f}; {options.rounds} rounds\n"
    )
    print(f"{'partition':<14}{'training':<46}{'method':<62}{'mean':>12}{'worst':>7}{'distance':>10}{'fewer bytes':>12}")
    rows: list[GossipRow] = []
    for partition, training, unnamed in product(options.partitions, plans, methods):
        last: list[GossipRow] = []
        method = found[str(training), unnamed]
        for seed in range(options.seeds):
            local_plan = LocalPlan(
                1, options.steps, options.batch_size, options.learning_rate, options.momentum, 0.0, training
            )
            task = GossipTask(
                card,
                options.model,
                partition,
                shares[partition, seed],
                test,
                local_plan,
                options.rounds,
                options.evaluate_every,
                options.quasi_global,
                seed,
            )
            try:
                rows += run(task, method, topology)
            except ValueError as error:  # weights that are not finite
                print(f"{partition:<14}{str(training) or '-':<46}{method!s:<62} seed {seed}: {error}", flush=True)
                continue
            last.append(rows[-1])
        if last:
            print(_line(last), flush=True)
        write_rows(options.out, rows)
    return 0


def _with_step_size(topology: Topology, model: torch.nn.Module, method: Choco | DeepSqueeze) -> Choco | DeepSqueeze:
    """Return `method` with the step size that it names, or that a network of such models finds."""
    if method.step_size is not None:
        return method
    return find_step_size(topology, method, Network.shapes({name: t.numpy() for name, t in model.state_dict().items()}))


def _line(rows: Sequence[GossipRow]) -> str:
    """Return the means over the seeds, and the standard deviation of the mean model's accuracy if there are several."""
    accuracies = 100 * np.array([row.accuracy for row in rows])
    accuracy = f"{accuracies.mean():.1f}" + (f" ± {accuracies.std(ddof=1):.1f}" if len(rows) > 1 else "")
    worst, distance = (np.mean([(100 * row.worst_accuracy, row.consensus_distance) for row in rows], axis=0)).tolist()
    ratio = sum(row.dense_bytes for row in rows) / sum(row.sent_bytes for row in rows)
    first = rows[0]
    return (
        f"{first.partition:<14}{first.training or '-':<46}{first.method:<62}{accuracy:>12}{worst:>7.1f}{distance:>10.3f}"
        f"{ratio:>11.1f}x"
    )


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
    parser.add_argument("--training", nargs="+", default=("",), metavar="PLAN", help="plug-ins of fedcomp.training")
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
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--out", type=Path, help="a CSV file for all evaluated rounds")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
