"""Train without a server on this machine: each node of a graph is a process, and they talk over gRPC with TLS.

    python -m experiments.gossip_processes --nodes 4 --rounds 60

It makes the keys and the settings of all nodes in a folder, runs ``fedcomp gossip`` once for each, and prints what
they reached and sent. `Classifier` is what they learn.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray

from clients.local import LocalPlan, train
from deploy.environment import free_ports
from deploy.keys import make_peer
from experiments.command import BATCH, command, load_test, new_parser, positive, samples_of, usage
from fedcomp.commands import path_of
from fedcomp.core import parse_setting, read_archive
from fedcomp.gossip import parse_method, parse_topology
from fedcomp.tasks import build_model, evaluate, input_shape

ROOT = Path(__file__).resolve().parents[1]
GRACE_S, POLL_S = 10.0, 0.1
INTERRUPTED = 130
Arrays = dict[str, NDArray[Any]]


class Classifier:
    """The task of a node (`fedcomp.gossip.peers.Task`): a model of `fedcomp.tasks`, on its share of a dataset."""

    def __init__(
        self,
        node: int,
        num_nodes: int,
        seed: int,
        *,
        dataset: str = "digits",
        data_dir: str = "",
        model: str = "mlp",
        partition: str = "skewed(0.6)",
        steps: int = 2,
        learning_rate: float = 0.1,
    ) -> None:
        torch.set_num_threads(1)
        self._rng_seed = [seed, node]
        self._samples = samples_of(dataset, data_dir, partition, seed, num_nodes)[node]
        card, self._test = load_test(dataset, data_dir)
        self._model = build_model(model, input_shape(card), card.num_classes, seed)
        self._plan = LocalPlan(1, steps, 32, learning_rate, 0.0, 0.0)

    def first_model(self) -> Arrays:
        """Return the model of the seed."""
        return {name: tensor.numpy().copy() for name, tensor in self._model.state_dict().items()}

    def train(
        self, model: Mapping[str, NDArray[Any]], kept: Mapping[str, NDArray[Any]], round_number: int
    ) -> tuple[Arrays, Arrays]:
        """Return `model` after some steps on the node's samples; nothing is kept."""
        self._load(model)
        train(self._model, *self._samples, self._plan, np.random.default_rng([*self._rng_seed, round_number]))
        return self.first_model(), {}

    def evaluate(self, model: Mapping[str, NDArray[Any]], round_number: int) -> dict[str, float]:
        """Return loss and accuracy, 0 to 1, on the test split."""
        self._load(model)
        loss, accuracy = evaluate(self._model, *self._test, BATCH)
        return {"loss": loss, "accuracy": accuracy}

    def _load(self, model: Mapping[str, NDArray[Any]]) -> None:
        self._model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in model.items()})


def write_nodes(folder: Path, options: argparse.Namespace) -> list[Path]:
    """Make the keys and the settings of all nodes in `folder`; return the files of settings.

    Raises `ValueError` for a graph, a method or a task that does not fit.
    """
    topology = parse_setting("topology", options.topology, lambda text: parse_topology(text, options.nodes))
    parse_setting("method", options.method, parse_method)
    task = {
        "dataset": options.dataset,
        "data_dir": options.data_dir,
        "model": options.model,
        "partition": options.partition,
    }
    Classifier(0, options.nodes, options.seed, **task)
    ports, paths = free_ports(options.nodes), list[Path]()
    for node in range(options.nodes):
        if not (folder / "keys" / f"node-{node}.pem").exists():
            make_peer(folder / "keys", node)
        values = {
            "node": node,
            "nodes": options.nodes,
            "listen": f"127.0.0.1:{ports[node]}",
            "topology": options.topology,
            "method": options.method,
            "rounds": options.rounds,
            "seed": options.seed,
            "state-dir": f"node-{node}",
            "task": "experiments.gossip_processes:Classifier",
            "settings": task,
            "silence": 30.0,  # of a process that loads torch
            "neighbors": {str(other): f"127.0.0.1:{ports[other]}" for other in topology.neighbors[node]},
            "tls": {"ca": "keys/ca.pem", "certificate": f"keys/node-{node}.pem", "key": f"keys/node-{node}.key"},
        }
        paths.append(folder / f"node-{node}.toml")
        paths[-1].write_text(tomli_w.dumps(values), encoding="utf-8")
    return paths


def run_nodes(paths: Sequence[Path]) -> int:
    """Run one process for each file of settings, with a log beside it, until all have ended or one has failed.

    Returns 0, or the exit status of the one that failed, after the last line of its log.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for path in paths:
            with path.with_suffix(".log").open("ab") as log:
                command = [sys.executable, "-m", "fedcomp.gossip", str(path)]
                processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        while (running := [each.poll() for each in processes]).count(0) < len(running):
            if failed := [place for place, status in enumerate(running) if status]:
                lines = paths[failed[0]].with_suffix(".log").read_text(encoding="utf-8").splitlines()
                print(f"{paths[failed[0]].stem}: {(lines or ['it has ended'])[-1]}", file=sys.stderr)
                return running[failed[0]] or 0
            time.sleep(POLL_S)
        return 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(options: argparse.Namespace) -> int:
    """Print a line for each node; return the status of one that failed."""
    with tempfile.TemporaryDirectory(prefix="fedcomp-gossip-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        with usage():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = write_nodes(folder, options)
        try:
            if status := run_nodes(paths):
                return status
        except KeyboardInterrupt:
            return INTERRUPTED
        _report(folder, options)
    return 0


def _report(folder: Path, options: argparse.Namespace) -> None:
    models: list[NDArray[np.float64]] = []
    print(f"{'node':>4}{'accuracy':>10}{'kB sent':>9}{'received':>10}{'fewer bytes':>13}")
    for node in range(options.nodes):
        lines = (folder / f"node-{node}" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        sent, received, dense = (
            sum(row.get(name, 0) for row in rows) for name in ("uplink_bytes", "downlink_bytes", "dense_uplink_bytes")
        )
        accuracy = f"{100 * rows[-1]['accuracy']:.1f} %"
        print(f"{node:>4}{accuracy:>10}{sent / 1e3:>9.0f}{received / 1e3:>10.0f}{dense / sent:>12.1f}x")
        models.append(read_archive(folder / f"node-{node}" / "state")["node/model"].astype(np.float64))
    mean = np.mean(models, axis=0)
    distance = np.sqrt(np.mean([np.square(model - mean).sum() for model in models]))
    print(f"{options.rounds} rounds; the models are {distance:.3f} from their mean")


PARSER = new_parser("python -m experiments.gossip_processes", "A process a node.", model="mlp", partition="skewed(0.6)")
PARSER.add_argument("--nodes", type=positive, default=4)
PARSER.add_argument("--rounds", type=positive, default=60)
PARSER.add_argument("--topology", default="ring()")
PARSER.add_argument("--method", default="choco(eden(bits=2), step_size=1.0)")
PARSER.add_argument("--seed", type=int, default=0)
PARSER.add_argument("--folder", type=path_of, help="keeps keys, settings and states; a second run continues from them")
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
