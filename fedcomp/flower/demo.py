"""A federation in this process, plain and compressed: what ``fedcomp demo`` runs, with numpy and Flower alone.

The task is made by code: two thousand samples of ten classes, each class scattered around three points, and every node holds
samples of a few classes only.  A network with one hidden layer learns it.  All runs have the same seed, start and nodes.
"""

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.core import check_int
from fedcomp.flower.client.mod import CompressionMod
from fedcomp.flower.compat import GridWrapper
from fedcomp.flower.local_grid import LocalGrid
from fedcomp.flower.records import dense_sizes
from fedcomp.flower.server.links.checks import check_links
from fedcomp.flower.server.strategy import CompressedStrategy
from fedcomp.methods import parse

Weights = dict[str, NDArray[np.float32]]
NODES, SAMPLES, TEST_SAMPLES, CLASSES, INPUTS, HIDDEN = 20, 2000, 1000, 10, 64, 128
STEPS, BATCH, LEARNING_RATE = 10, 20, 0.1


@dataclass(frozen=True, slots=True)
class DemoRow:
    """The result of one run; bytes are measured, over all rounds and nodes."""

    uplink_bytes: int
    downlink_bytes: int
    accuracy: float
    seconds: float


class CountingGrid(GridWrapper):
    """Counts the bytes of the arrays in both directions."""

    uplink_bytes = 0
    downlink_bytes = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages; return the replies."""
        messages = list(messages)
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.downlink_bytes += _size(messages)
        self.uplink_bytes += _size(replies)
        return replies


def _size(messages: Iterable[Message]) -> int:
    return sum(sum(dense_sizes(message.content).values()) for message in messages if message.has_content())


def run(compressor: Compressor | None, rounds: int, seed: int = 0) -> DemoRow:
    """Train `rounds` rounds, compressed both ways by `compressor`, or as plain Flower if it is None.

    Raises `RuntimeError` if a node fails.
    """
    x, y = _samples(SAMPLES + TEST_SAMPLES, np.random.default_rng(seed))
    order = np.argsort(y[:SAMPLES], kind="stable")  # in runs of one class: each node gets two of forty shards
    shards = np.random.default_rng([seed, 1]).permutation(np.split(order, 2 * NODES)).reshape(NODES, -1)
    app = ClientApp(mods=[CompressionMod(start=lambda context: _first_weights(seed))] if compressor else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        own = shards[cast(int, context.node_config["partition-id"])]
        config = cast(ConfigRecord, message.content["config"])
        weights = _weights(cast(ArrayRecord, message.content["arrays"]))
        _train(
            weights, x[own], y[own], np.random.default_rng([seed, context.node_id, cast(int, config["server-round"])])
        )
        metrics = MetricRecord({"num-examples": len(own)})
        return Message(RecordDict({"arrays": _record(weights), "metrics": metrics}), reply_to=message)

    grid = CountingGrid(LocalGrid(app, NODES))
    begin = time.perf_counter()
    with _quiet():
        plain = FedAvg(fraction_evaluate=0.0, min_available_nodes=NODES)
        compressed = (
            CompressedStrategy(plain, uplink=compressor, downlink=compressor, seed=seed, shared_start=True)
            if compressor
            else None
        )
        result = (compressed or plain).start(grid, _record(_first_weights(seed)), num_rounds=rounds)
    if len(result.train_metrics_clientapp) < rounds:
        raise RuntimeError(f"only {len(result.train_metrics_clientapp)} of {rounds} rounds brought updates")
    scores = _forward(_weights(result.arrays), x[SAMPLES:])[1]
    accuracy = float((scores.argmax(1) == y[SAMPLES:]).mean())
    traffic = compressed.ledger if compressed else grid
    return DemoRow(traffic.uplink_bytes, traffic.downlink_bytes, accuracy, time.perf_counter() - begin)


def report(methods: Sequence[str], rounds: int, seed: int = 0) -> Iterator[str]:
    """Yield lines about a run of plain Flower and one run for each of `methods`, such as ``"eden(bits=1)"``.

    Raises `ValueError` for a method or a number of rounds that cannot be used, before the first run.
    """
    check_int("rounds", rounds, 1, 100_000)
    compressors = [parse(text) for text in methods]
    for compressor in compressors:
        check_links(FedAvg(), compressor, compressor)
    return _lines(compressors, rounds, seed)


def _lines(compressors: Sequence[Compressor], rounds: int, seed: int) -> Iterator[str]:
    yield f"{NODES} simulated nodes, each with samples of few of the {CLASSES} classes; {rounds} rounds;"
    yield f"made-up data, seed {seed}."
    yield ""
    yield f"{'':<28}{'up':>10}{'ratio':>8}{'down':>10}{'ratio':>8}{'accuracy':>10}{'time':>6}"
    plain: DemoRow | None = None
    for compressor in (None, *compressors):
        row = run(compressor, rounds, seed)
        plain = plain or row
        up, down = plain.uplink_bytes / row.uplink_bytes, plain.downlink_bytes / row.downlink_bytes
        sizes = f"{row.uplink_bytes / 1e6:>7.2f} MB{up:>7.1f}x{row.downlink_bytes / 1e6:>7.2f} MB{down:>7.1f}x"
        name = str(compressor) if compressor else "plain Flower"
        yield f"{name:<28}{sizes}{100 * row.accuracy:>8.1f} %{row.seconds:>4.0f} s"
    yield ""
    yield "Each line is a run of its own, from the same start, which nodes make themselves"
    yield "from a seed; plain Flower sends it. Bytes are counted as they are sent, over all"
    yield "nodes and rounds. Accuracy is that of the server's model at the end."


def _samples(count: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return inputs float32 (count, INPUTS) and classes (count,)."""
    centres = rng.standard_normal((CLASSES, 3, INPUTS))
    y = rng.integers(CLASSES, size=count)
    x = centres[y, rng.integers(3, size=count)] + 1.1 * rng.standard_normal((count, INPUTS))
    return x.astype(np.float32), y


def _first_weights(seed: int) -> Weights:
    rng = np.random.default_rng([seed, 2])
    sides = {"hidden": (INPUTS, HIDDEN), "output": (HIDDEN, CLASSES)}
    weights: Weights = {}
    for name, (rows, columns) in sides.items():
        weights[f"{name}.weight"] = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(columns, np.float32)
    return weights


def _forward(weights: Weights, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the hidden layer's outputs and the scores of the classes."""
    hidden = np.maximum(x @ weights["hidden.weight"] + weights["hidden.bias"], 0)
    return hidden, hidden @ weights["output.weight"] + weights["output.bias"]


def _train(weights: Weights, x: NDArray[np.float32], y: NDArray[np.int64], rng: np.random.Generator) -> None:
    for _ in range(STEPS):
        batch = rng.choice(len(y), BATCH, replace=False)
        hidden, scores = _forward(weights, x[batch])
        error = np.exp(scores - scores.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[np.arange(BATCH), y[batch]] -= 1
        error *= LEARNING_RATE / BATCH
        back = error @ weights["output.weight"].T * (hidden > 0)
        weights["output.weight"] -= hidden.T @ error
        weights["output.bias"] -= error.sum(0)
        weights["hidden.weight"] -= x[batch].T @ back
        weights["hidden.bias"] -= back.sum(0)


def _record(weights: Weights) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in weights.items()})


def _weights(record: ArrayRecord) -> Weights:
    return {name: array.numpy().copy() for name, array in record.items()}


@contextmanager
def _quiet() -> Generator[None]:
    """Let only errors into Flower's log."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
