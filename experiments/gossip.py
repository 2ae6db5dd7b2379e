"""Train without a server: nodes on a graph, several ways to train and to exchange models, and partitions; one line for each.

    python -m experiments.gossip --rounds 100

--out writes all evaluated rounds to a CSV file, which experiments.gossip_figure draws. Everything runs in this process and is
the same each time.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clients.local import LocalPlan, train
from clients.plug_ins import check_plug_ins
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
from fedcomp.core import check_range, parse_setting
from fedcomp.data import Card
from fedcomp.gossip import (
    Choco,
    DeepSqueeze,
    Network,
    Topology,
    parse_method,
    parse_topology,
    quasi_global_momentum,
    with_step_size,
)
from fedcomp.sync import derive_seed
from fedcomp.tasks import build_model, evaluate, input_shape
from fedcomp.training import Plan, parse

PARTITIONS = ("skewed(0)", "skewed(0.6)", "skewed(0.8)")
METHODS = (
    "choco(dense())",
    "choco(eden(bits=2))",
    "choco(topk(density=0.05, feedback=False))",
    "deep_squeeze(topk(density=0.1))",
)
MAX_MOMENTUM = 0.9999
Arrays = dict[str, NDArray[Any]]


def run(
    options: argparse.Namespace,
    training: Plan,
    method: Choco | DeepSqueeze,
    topology: Topology,
    shares: Sequence[Samples],
    test: tuple[Card, Samples],
    seed: int,
) -> Iterator[Row]:
    """Train, each node on its own share; yield the evaluated rounds, the last one among them.

    A row has the accuracies of the mean model and of the worst node's, 0 to 1, and the bytes since the start.
    """
    card, test_samples = test
    plan = LocalPlan(1, options.steps, options.batch_size, options.learning_rate, options.momentum, 0.0, training)
    model = _model(options, card, training, seed)
    used = training.inference(model)
    first = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    network = Network(topology, first, method, seed)
    rngs = [np.random.default_rng([seed + 1, node]) for node in range(topology.num_nodes)]
    kept = [dict[str, Mapping[str, Tensor]]() for _ in rngs]
    momenta = [Arrays() for _ in rngs]
    sent_bytes = dense_bytes = 0
    for number in range(1, options.rounds + 1):
        trained: list[Arrays] = []
        before = [network.model(node) for node in range(topology.num_nodes)]
        for node, (x, y) in enumerate(shares):
            _load(model, before[node])
            plug_in_seed = derive_seed(seed, number, node)
            kept[node] = train(model, x, y, plan, rngs[node], kept[node], seed=plug_in_seed).state
            trained.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
        exchanged = network.exchange(trained)
        if options.quasi_global:
            rates = {"decay": plan.momentum, "learning_rate": plan.learning_rate}
            momenta = [
                quasi_global_momentum(momenta[node], each, network.model(node), **rates, steps=plan.steps)
                for node, each in enumerate(before)
            ]
            kept = [
                {**state, "momentum": {name: torch.from_numpy(array.copy()) for name, array in each.items()}}
                for state, each in zip(kept, momenta, strict=True)
            ]
        sent_bytes, dense_bytes = sent_bytes + exchanged.sent_bytes, dense_bytes + exchanged.dense_bytes
        if number % options.evaluate_every == 0 or number == options.rounds:
            accuracies: list[float] = []
            for arrays in (network.mean_model, *(network.model(node) for node in range(topology.num_nodes))):
                _load(model, arrays)
                accuracies.append(evaluate(used, *test_samples, BATCH)[1])
            yield {
                "training": str(training),
                "method": str(method),
                "seed": seed,
                "round": number,
                "accuracy": accuracies[0],
                "worst_accuracy": min(accuracies[1:]),
                "consensus_distance": network.consensus_distance,
                "sent_bytes": sent_bytes,
                "dense_bytes": dense_bytes,
            }


def _model(options: argparse.Namespace, card: Card, training: Plan, seed: int) -> nn.Module:
    return training.prepare(build_model(options.model, input_shape(card), card.num_classes, seed), seed)


def _load(model: torch.nn.Module, arrays: Arrays) -> None:
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def run_all(options: argparse.Namespace) -> None:
    """Print a line for each partition, training and method."""
    torch.set_num_threads(1)
    with usage():
        topology = parse_setting("topology", options.topology, lambda text: parse_topology(text, options.nodes))
        methods = [parse_setting("method", text, parse_method) for text in options.methods]
        test = load_test(options.dataset, options.data_dir)
        card = test[0]
        shares = {
            (partition, seed): samples_of(options.dataset, options.data_dir, partition, seed, options.nodes)
            for partition in options.partitions
            for seed in range(options.seeds)
        }
        plans = [parse_setting("training", text, parse) for text in options.training]
        for text in options.training:
            check_plug_ins(text, _model(options, card, Plan(), 0), input_shape(card))
        check_range("--learning-rate", options.learning_rate, above=0)
        check_range("--momentum", options.momentum, least=0, most=MAX_MOMENTUM)
        if options.quasi_global and not options.momentum:
            raise ValueError("--quasi-global is given, and --momentum is 0; a momentum above 0 is needed")
        check_out(options.out)
        found: dict[tuple[str, Choco | DeepSqueeze], Choco | DeepSqueeze] = {}
        for training, method in product(plans, methods):
            first = {name: t.numpy() for name, t in _model(options, card, training, 0).state_dict().items()}
            found[str(training), method] = with_step_size(topology, method, Network.shapes(first))
    print(
        f"{options.nodes} nodes, {options.topology}, spectral gap {topology.spectral_gap:.3f}; {options.rounds} rounds\n"
    )
    print(f"{'partition':<14}{'training':<46}{'method':<62}{'mean':>12}{'worst':>7}{'distance':>10}{'fewer bytes':>12}")
    rows: list[Row] = []
    for partition, training, unnamed in product(options.partitions, plans, methods):
        last: list[Row] = []
        method = found[str(training), unnamed]
        names = f"{partition:<14}{str(training) or '-':<46}{method!s:<62}"
        for seed in range(options.seeds):
            trial = run(options, training, method, topology, shares[partition, seed], test, seed)
            try:
                rows += ({"partition": partition, **row} for row in trial)
            except ValueError as error:  # weights that are not finite
                print(f"{names} seed {seed}: {error}", flush=True)
                continue
            last.append(rows[-1])
        if last:
            print(names + _numbers(last), flush=True)
        save(rows, options.out)


def _numbers(rows: Sequence[Row]) -> str:
    """Return the means over the seeds, and the standard deviation of the mean model's accuracy if there are several."""
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    accuracy = f"{accuracies.mean():.1f}" + (f" ± {accuracies.std(ddof=1):.1f}" if len(rows) > 1 else "")
    worst, distance = (float(np.mean([row[key] for row in rows])) for key in ("worst_accuracy", "consensus_distance"))
    ratio = sum(row["dense_bytes"] for row in rows) / sum(row["sent_bytes"] for row in rows)
    return f"{accuracy:>12}{100 * worst:>7.1f}{distance:>10.3f}{ratio:>11.1f}x"


PARSER = new_parser("python -m experiments.gossip", "Train without a server.", model="mlp")
add_training(PARSER, steps=2, batch_size=32)
PARSER.add_argument("--nodes", type=positive, default=8)
PARSER.add_argument(
    "--topology", default="ring()", help="ring(), torus(), exponential(), complete() or edges([[0, 1], ...])"
)
PARSER.add_argument("--partitions", nargs="+", default=PARTITIONS, metavar="PARTITION")
PARSER.add_argument("--training", nargs="+", default=("",), metavar="PLAN", help="plug-ins of fedcomp.training")
PARSER.add_argument(
    "--methods", nargs="+", default=METHODS, metavar="METHOD", help="a step_size that is not named is found"
)
PARSER.add_argument("--rounds", type=positive, default=100)
PARSER.add_argument("--evaluate-every", type=positive, default=10)
PARSER.add_argument("--momentum", type=float, default=0.0)
PARSER.add_argument("--quasi-global", action="store_true", help="take the momentum from what mixing did, too")
PARSER.add_argument("--seeds", type=positive, default=1)
main = command(run_all, PARSER)


if __name__ == "__main__":
    sys.exit(main())
