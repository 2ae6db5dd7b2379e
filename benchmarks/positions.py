"""Bits of a kept entry's position, in several codes, on the updates of models that really train.

    python -m benchmarks.positions --data-dir DIR

DIR has the folders `mnist` and `fashion-mnist`.  Ten of a hundred nodes with two classes each train in a round; uplink and
downlink are STC at one density.  Recorded are, in the last rounds, one update and the new version of each round.

* `independent`: the entropy of k positions out of n without any structure.
* `Golomb`, `delta keys`, `gamma`: the kinds of positions that fedcomp writes.
* `moved`: gamma code of the positions after the entries are ordered by how far they have moved since the origin, in classes of
  half an octave.  Both sides know that before a frame is read.  fedcomp does not write it.
* `zstd`: the gaps' bytes, the low ones first, at level 19.  `range coder`: the lengths of the gaps by that of the gap before,
  as a range coder codes them that knows these frequencies already, and the bits below: a bound.  Both if the packages
  zstandard and constriction are installed.
"""

import argparse
import importlib.util
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

import fedcomp
from benchmarks.measurement import print_table
from clients.app import app as study_app
from clients.local import LocalPlan, train
from clients.samples import own_card, own_samples
from deploy.run_config import ROOT, app_of
from fedcomp.entropy.codes import gamma, positions
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from fedcomp.flower.records import packed
from fedcomp.quantized import Indices, StepCounts, Ternary
from fedcomp.sync import decode_update
from fedcomp.tasks import build_model, input_shape
from fedcomp.wire import parse_single_frame

CLIENTS, A_ROUND = 100, 10
RECORDED = 10
"""The last rounds of a run, which are recorded."""
Recording = tuple[int, Indices, StepCounts]
"""Entries of the vector, the kept ones, and how far each entry had moved before, in units of the grid."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: He, Zhang, Ren, Sun, CVPR 2016."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(8, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(8, outputs),
        )
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """Return a ResNet-18 for small gray images, with group norm, about 11.2 million parameters."""
    sides = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [block for a, b, stride in sides for block in (BasicBlock(a, b, stride), BasicBlock(b, b, 1))]
    stem = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.GroupNorm(8, 64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def resnet_app(config: dict[str, Any]) -> ClientApp:
    """Return an app that trains a ResNet-18 for one step."""
    app, model = ClientApp(mods=[CompressionMod()]), resnet18()
    plan = LocalPlan(1, 1, int(config["batch-size"]), float(config["learning-rate"]), 0.0, 0.0)

    @app.train()
    def step(message: Message, context: Any) -> Message:
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        x, y = own_samples(config, context.node_config, torch.device("cpu"))
        train(model, x, y, plan, np.random.default_rng(context.node_id))
        metrics = MetricRecord({"num-examples": len(y)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


class Recorder(LocalGrid):
    """A grid that decodes the first update of each of the last rounds."""

    def __init__(self, app: ClientApp, config: dict[str, Any], strategy: CompressedStrategy, rounds: int) -> None:
        super().__init__(app, CLIENTS, config, in_memory=True)
        self.strategy, self.first, self.found = strategy, rounds - RECORDED, list[Recording]()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies."""
        replies, replica = list(super().pull_messages(message_ids)), self.strategy.publisher.replica
        if replies and replica.version >= self.first and replica.origin is not None:
            found = packed(replies[0].content)
            if found is not None:
                update = decode_update(parse_single_frame(found[1]), replica)
                self.found.append(recording(update.change, replica.origin.counts))
        return replies


def recording(quantized: object, counts: StepCounts) -> Recording:
    """Return what is recorded of a ternary vector."""
    if not isinstance(quantized, Ternary):
        raise TypeError(f"a {type(quantized).__name__}; STC sends ternary vectors")
    return quantized.n, quantized.indices, counts.copy()


def record(model: str, density: float, rounds: int, config: dict[str, Any]) -> dict[str, list[Recording]]:
    """Train `model` for `rounds`, and return the recordings up and down."""
    torch.manual_seed(0)
    card = own_card(str(config["dataset"]))
    net = resnet18() if model == "resnet-18" else build_model(model, input_shape(card), card.num_classes, 0)
    compressor = fedcomp.stc(density=density)
    down: list[Recording] = []

    def published(number: int, _: object) -> None:
        replica = strategy.publisher.replica
        if number > rounds - RECORDED and replica.origin is not None and before:
            moved = np.flatnonzero(replica.origin.counts != before[0])
            down.append((moved.size and replica.layout.n, moved, before[0]))
        before[:] = [replica.origin.counts.copy()] if replica.origin is not None else []

    before: list[StepCounts] = []
    strategy = CompressedStrategy(
        FedAvg(fraction_train=A_ROUND / CLIENTS + 1e-9, fraction_evaluate=0.0), uplink=compressor, downlink=compressor
    )
    app = resnet_app(config) if model == "resnet-18" else study_app
    grid = Recorder(app, config | {"model": model}, strategy, rounds)
    strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=rounds, evaluate_fn=published)
    return {"up": grid.found, "down": down}


def independent(found: Recording) -> float:
    """Return the bits of k independent positions out of n: n H(k / n)."""
    n, indices, _ = found
    p = indices.size / n
    return float(-n * (p * np.log2(p) + (1 - p) * np.log2(1 - p)))


def of_kind(kind: str) -> Callable[[Recording], float]:
    """Return a function that returns the bits of the positions in one kind."""
    return lambda found: 8.0 * len(positions.write(found[1], found[0], kind))


def moved(found: Recording) -> float:
    """Return the bits of the positions among the entries ordered by how far they have moved, the farthest first."""
    n, indices, counts = found
    fractions, exponents = np.frexp(np.abs(counts.astype(np.float64)))
    classes = np.where(counts == 0, 0, 2 * exponents + (fractions >= 0.75) + 1).astype(np.uint8)
    places = np.empty(n, np.int64)
    places[np.argsort(255 - classes, kind="stable")] = np.arange(n)
    return 8.0 * len(positions.write(np.sort(places[indices]), n, "gamma"))


def zstd(found: Recording) -> float:
    """Return the bits of the gaps by zstd."""
    gaps = np.diff(found[1], prepend=-1).astype("<u4").view(np.uint8).reshape(-1, 4)
    compressed: bytes = importlib.import_module("zstandard").ZstdCompressor(level=19).compress(gaps.T.tobytes())
    return 8.0 * len(compressed)


def range_coder(found: Recording) -> float:
    """Return the bits of the gaps by a range coder that knows the frequencies of lengths after each length."""
    stream = importlib.import_module("constriction").stream
    lengths = gamma.lengths_of(np.diff(found[1], prepend=-1)).astype(np.int32)
    coder, before = stream.queue.RangeEncoder(), np.concatenate(([0], lengths[:-1]))
    for length in np.unique(before):
        own = lengths[before == length]
        shares = np.bincount(own, minlength=32) / own.size
        coder.encode(own, stream.model.Categorical(np.maximum(shares, 1e-9), perfect=False))
    compressed: int = coder.get_compressed().size
    return 32.0 * compressed + float(lengths.sum())


CODES: dict[str, Callable[[Recording], float]] = {
    "independent": independent,
    "Golomb": of_kind("Golomb"),
    "delta keys": of_kind("delta keys"),
    "gamma": of_kind("gamma"),
    "moved": moved,
}
FOREIGN = {"zstd": ("zstandard", zstd), "range coder": ("constriction", range_coder)}


def main() -> None:
    """Record, measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True, help="the folder of the folders mnist and fashion-mnist")
    parser.add_argument("--models", nargs="+", default=["logistic", "cnn", "resnet-18"], help="those of the table")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    codes = dict(CODES)
    for name, (package, code) in FOREIGN.items():
        if importlib.util.find_spec(package):
            codes[name] = code
    rows: list[dict[str, object]] = []
    for model, dataset, density, rounds in (
        ("logistic", "mnist", 1 / 100, 400),
        ("cnn", "fashion-mnist", 1 / 100, 200),
        ("cnn", "fashion-mnist", 1 / 400, 200),
        ("resnet-18", "fashion-mnist", 1 / 100, 20),
        ("resnet-18", "fashion-mnist", 1 / 400, 20),
    ):
        if model not in options.models:
            continue
        config = {
            **app_of(ROOT)["config"],
            "dataset": dataset,
            "data-dir": str(Path(options.data_dir).expanduser().absolute() / dataset),
            "partition": "stc(classes=2)",
            "batch-size": 20,
            "learning-rate": 0.05,
            "local-steps": 1,
            "device": "cpu",
        }
        for link, found in record(model, density, rounds, config).items():
            kept = sum(indices.size for _, indices, _ in found)
            bits = {name: f"{sum(map(code, found)) / kept:.2f}" for name, code in codes.items()}
            size = f"{found[0][0]:,}"
            rows.append({"model": model, "entries": size, "density": f"1/{1 / density:.0f}", "": link, **bits})
    print_table("bits of a position", rows)


if __name__ == "__main__":
    main()
