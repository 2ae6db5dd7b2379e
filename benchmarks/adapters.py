"""Traffic of adapters of language models: LoRA of rank 32 on models of 0.5, 3 and 7 billion parameters.

    python -m benchmarks.adapters [--models 0.5B 3B 7B] [--nodes 20] [--per-round 2] [--rounds 200] [--links "UP DOWN" ...]

Adapters of a small language model are trained, by plain Flower and compressed, and their losses printed.  The nodes of the
large models then send the same updates, enlarged: each row or column of a large matrix is one of the small matrix, drawn
once at random.  So the values, and how they change over the rounds, are those of a real training.  No large model is
trained, and nothing is said about its accuracy.

The shapes are those of the public configurations of Qwen2.5-0.5B, Llama-3.2-3B and Mistral-7B-v0.3, with adapters on the
projections of queries and values.  FlowerTune's baseline has those of Mistral: 200 rounds of 2 of 20 nodes, 40.7 GB.
Here, too, a GB is 2^30 bytes.  Bytes are measured; plain Flower's are those of its arrays.  The nodes make the first adapter
themselves (`shared_start`).  Seconds are CPU seconds of the codec; memory is the peak of the process, with server and nodes.
"""

import argparse
import logging
import multiprocessing
import random
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from benchmarks.measurement import print_table
from benchmarks.small_adapter import LAYERS, RANK, WIDTH, Adapter, SmallTraining
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, to_record

LINKS = ("auto() auto()",)
GB = 1 << 30
SEED = 0
Node = Callable[[Adapter, int, int], tuple[Adapter, int]]
"""Returns a node's adapter after a round, and its number of samples, given the adapter before, the node and the round."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The layers of a language model, and the sizes of their input, queries and values."""

    layers: int
    hidden: int
    queries: int
    values: int


SHAPES = {
    "0.5B": ModelShape(24, 896, 896, 128),
    "3B": ModelShape(28, 3072, 3072, 1024),
    "7B": ModelShape(32, 4096, 4096, 1024),
}


@dataclass(frozen=True, slots=True)
class AdapterRun:
    """A federation that trains adapters: its nodes, how many train in a round, and the rounds."""

    nodes: int
    per_round: int
    rounds: int

    def run(self, first: Adapter, node: Node, links: str) -> tuple[Adapter, CompressedStrategy | None]:
        """Train from `first`, compressed by the two compressors in `links`, or as plain Flower for an empty text."""
        app = ClientApp(mods=[CompressionMod(start=lambda _: first)] if links else [])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            adapter = _arrays(cast(ArrayRecord, message.content["arrays"]))
            server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
            adapter, samples = node(adapter, cast(int, context.node_config["partition-id"]), server_round)
            metrics = MetricRecord({"num-examples": samples})
            return Message(RecordDict({"arrays": to_record(adapter), "metrics": metrics}), reply_to=message)

        plain, compressed = FedAvg(self.per_round / self.nodes, 0.0, min_available_nodes=self.nodes), None
        if links:
            up, down = (fedcomp.parse(text) for text in links.split())
            compressed = CompressedStrategy(plain, uplink=up, downlink=down, shared_start=True)
        random.seed(SEED)  # Flower picks the nodes by it: the same ones in each run
        grid = LocalGrid(app, self.nodes, in_memory=True)
        result = (compressed or plain).start(grid, to_record(first), num_rounds=self.rounds)
        return _arrays(result.arrays), compressed


class Recorded:
    """The small training, whose updates it keeps."""

    def __init__(self, plan: AdapterRun, links: Sequence[str]) -> None:
        """Train plain, and with each of `links`."""
        small = SmallTraining(plan.nodes, SEED)
        self.first, self.updates = small.adapter, dict[tuple[int, int], tuple[Adapter, int]]()

        def trained(adapter: Adapter, node: int, server_round: int) -> tuple[Adapter, int]:
            small.set_adapter(adapter)
            samples = small.train(node, seed=1000 * server_round + node)
            return small.adapter, samples

        def kept(adapter: Adapter, node: int, server_round: int) -> tuple[Adapter, int]:
            after, samples = trained(adapter, node, server_round)
            self.updates[server_round, node] = {name: after[name] - adapter[name] for name in after}, samples
            return after, samples

        self.losses = {"before": small.loss()}
        self.last, _ = plan.run(self.first, kept, "")
        small.set_adapter(self.last)
        self.losses["plain Flower"] = small.loss()
        for text in links:
            last, _ = plan.run(self.first, trained, text)
            small.set_adapter(last)
            self.losses[text] = small.loss()

    def replay(self, enlarge: "Enlarged") -> Node:
        """Return a node of a large model that sends the updates of the plain training, enlarged."""

        def replayed(adapter: Adapter, node: int, server_round: int) -> tuple[Adapter, int]:
            update, samples = self.updates[server_round, node]
            return {name: adapter[name] + change for name, change in enlarge(update).items()}, samples

        return replayed


class Enlarged:
    """The adapter of a large model, whose matrices are made of the rows and columns of a small one's."""

    def __init__(self, shape: ModelShape) -> None:
        rng = np.random.default_rng(SEED)
        self._parts: dict[str, tuple[str, NDArray[np.intp]]] = {}
        for layer in range(shape.layers):
            for kind, size in (("query", shape.queries), ("value", shape.values)):
                small = f"blocks.{layer % LAYERS}.{kind}"
                self._parts[f"layers.{layer}.{kind}.a"] = f"{small}.a", rng.integers(WIDTH, size=shape.hidden)
                self._parts[f"layers.{layer}.{kind}.b"] = f"{small}.b", rng.integers(WIDTH, size=size)

    def __call__(self, small: Adapter) -> Adapter:
        """Return the large adapter, or update, for that of the small model."""
        return {
            name: small[source][:, places] if name.endswith(".a") else small[source][places]
            for name, (source, places) in self._parts.items()
        }


def measured(model: str, plan: AdapterRun, links: str, recorded: Recorded) -> dict[str, object]:
    """Return the row of a model and its two compressors."""
    enlarge = Enlarged(SHAPES[model])
    first = enlarge(recorded.first)
    _, strategy = plan.run(first, recorded.replay(enlarge), links)
    assert strategy is not None  # noqa: S101 -- `links` names compressors
    traffic = strategy.ledger.total()
    updates = plan.rounds * plan.per_round
    return {
        "model": model,
        "entries": f"{sum(array.size for array in first.values()):,}",
        "up, down": links,
        "plain": f"{traffic.dense_bytes / GB:.2f} GB",
        "up": f"{traffic.uplink_bytes / GB:.4f} GB",
        "down": f"{traffic.downlink_bytes / GB:.4f} GB",
        "smaller": f"{traffic.ratio:.0f}x",
        "an update": f"{traffic.uplink_bytes / updates / 1e3:,.0f} kB",
        "encode": f"{traffic.encode_seconds / updates:.2f} s",
        "decode": f"{traffic.decode_seconds / updates:.2f} s",
        "memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB",
    }


def _arrays(record: ArrayRecord) -> Adapter:
    return {name: array.numpy().copy() for name, array in record.items()}


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--per-round", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--links", nargs="+", default=LINKS, metavar="'UP DOWN'", help="pairs of compressors")
    options = parser.parse_args()
    if not 1 <= options.per_round <= options.nodes:
        parser.error(f"--per-round is {options.per_round}; 1 to {options.nodes}, the number of nodes, is needed")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    plan = AdapterRun(options.nodes, options.per_round, options.rounds)
    recorded = Recorded(plan, options.links)
    losses = [{"small model": name, "loss": f"{loss:.3f}"} for name, loss in recorded.losses.items()]
    federation = f"{plan.rounds} rounds of {plan.per_round} of {plan.nodes} nodes"
    print_table(f"{federation}, adapters of rank {RANK}", losses)
    rows: list[dict[str, object]] = []
    for model in options.models:
        for links in options.links:  # a process for each, which shows its memory alone
            with multiprocessing.get_context("fork").Pool(1) as pool:
                rows.append(pool.apply(measured, (model, plan, links, recorded)))
    print_table("\nlarge adapters, the same updates", rows)


if __name__ == "__main__":
    main()
