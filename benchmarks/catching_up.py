"""What each way of serving nodes that were away is worth, in bytes, from the simplest to that of today.

    python -m benchmarks.catching_up --data-dir DIR [--nodes 400 100 50 10 5] [--rounds 1000] [--out FILE]

Five nodes with two classes each train the CNN on Fashion-MNIST in each round.  Uplink and downlink are STC 1/100.  All ways but
the last send the same versions of the same run, so their bytes are counted in one run, message by message:

* `whole model`: a node that missed more than the newest version gets the whole model in float32, and so does a new node.
* `each version`: it gets the versions that it missed, one by one, if they take fewer bytes than the whole model.
* `one sum`: it gets their sum as one frame, if this takes fewer bytes.
* `own first model`: a new node makes the first model itself, and gets the sum of all changes since.
* `gamma code`: positions may be in gamma code, up and down.
* `balanced 1/50`: another run, whose downlink is `balanced(stc(density=0.02))`.

Each run is added to FILE, a CSV, when it ends; runs that are in it already are not repeated.  The rows `sent` there have the
bytes that the run really sent: those of `gamma code`, or a few more where the server did not try all routes.
"""

import contextlib
import io
import json
import logging
import statistics
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from flwr.app import Message

from benchmarks.measurement import print_table
from clients.app import app as client_app
from deploy.run_config import ROOT, app_of
from fedcomp.commands import new_parser
from fedcomp.entropy.codes import positions
from fedcomp.flower import LocalGrid
from fedcomp.flower.server.model.published_model import PublishedModel
from fedcomp.quantized import StepCounts, Steps
from fedcomp.sync import Publisher
from fedcomp.sync.node_registry import UNKNOWN_VERSION
from fedcomp.sync.publisher import Reply
from fedcomp.wire import SECONDS, SOME_TENSORS, Frame, Kind, Layout, codec_by_id
from fedcomp.wire.selection import read_selection
from server.app import run

A_ROUND, LAST = 5, 5
STC, BALANCED = "stc(density=0.01)", "balanced(stc(density=0.02))"
WAYS = ("whole model", "each version", "one sum", "own first model", "gamma code")
SENT, BALANCE = "sent", "balanced 1/50"
KINDS = ("key_bytes", "jump_bytes", "delta_bytes", "replay_bytes")


@contextlib.contextmanager
def without_gamma_code() -> Generator[None]:
    """Leave gamma code out of the kinds of positions from which the smallest is taken."""
    with patch.dict(positions.CHOICES, {positions.SMALLEST: positions.CHOICES[positions.BOUNDED]}):
        yield


def older_size(frame: Frame, layout: Layout) -> int:
    """Return the size of a frame without gamma code of positions; the frame holds no exact tensors."""
    body, codec = frame.payload[SECONDS.size :] if frame.kind is Kind.UPDATE else frame.payload, frame.codec
    if codec == SOME_TENSORS:
        _, rest = read_selection(body, layout)
        codec, body = rest[0], rest[1:]
    code = codec_by_id(codec)
    with without_gamma_code():
        return frame.size - len(body) + len(code.encode(code.decode(body)))


class Count:
    """Counts what the messages of a run take in each of `WAYS`; `up` and `down` are bytes by way."""

    def __init__(self) -> None:
        self.up, self.down = Counter[str](), Counter[str]()
        self._counts: dict[int, StepCounts] = {}  # of the versions that nodes hold, in units of the grid
        self._older, self._today = [0], [0]  # the bytes of all versions up to each
        self._from_origin: tuple[int, int, int] = (-1, 0, 0)  # version, and the sizes of the jump to it

    def version(self, publisher: Publisher) -> None:
        """Note the version that was just published."""
        frame, origin = publisher.history.frames()[-1], publisher.replica.origin
        if origin is None or origin.base.version:
            raise RuntimeError("a version off the grid of the first one")
        self._older.append(self._older[-1] + older_size(frame, publisher.replica.layout))
        self._today.append(self._today[-1] + frame.size)
        held = {record.version for record in publisher.nodes.values()}
        self._counts = {version: counts for version, counts in self._counts.items() if version in held}
        self._counts[publisher.replica.version] = origin.counts.copy()

    def message(self, model: PublishedModel, held: int, sent: dict[str, int]) -> None:
        """Count a message to a node that holds version `held`, and for which `sent` bytes were counted."""
        head = sent["downlink_bytes"] - sum(sent.get(kind, 0) for kind in KINDS)
        for way, size in zip(WAYS, self._frames(model.publisher, held), strict=True):
            self.down[way] += head + size
        self.down[SENT] += sent["downlink_bytes"]

    def reply(self, data: bytes, reply: Reply, layout: Layout) -> None:
        """Count the reply in `data`."""
        older = len(data) if reply.update is None else older_size(reply.frame, layout)
        for way in WAYS:
            self.up[way] += len(data) if way == WAYS[-1] else older
        self.up[SENT] += len(data)

    def _frames(self, publisher: Publisher, held: int) -> tuple[int, ...]:
        """Return the bytes of the frames for a node that holds version `held`, in each of `WAYS`."""
        replica, start = publisher.replica, publisher.start
        now = replica.version
        if held == now:
            return (0,) * len(WAYS)
        whole = replica.key_frame().size
        if start is None:
            raise RuntimeError("nodes that cannot make the first model themselves")
        if held == UNKNOWN_VERSION:
            older, today = self._jump_from_origin(publisher)
            replay = (self._older[now], self._today[now])
            own = [start.size + min(pair) for pair in zip((older, today), replay, strict=True)]
            return whole, whole, whole, min(whole, own[0]), min(whole, own[1])
        older, today = self._older[now] - self._older[held], self._today[now] - self._today[held]
        if held == now - 1:
            return older, older, older, older, today
        jump, jump_today = self._jump(publisher, held)
        origin, origin_today = self._jump_from_origin(publisher)
        one = min(whole, older, jump)
        return whole, min(whole, older), one, min(one, origin), min(whole, today, jump_today, origin_today)

    def _jump(self, publisher: Publisher, held: int) -> tuple[int, int]:
        """Return the size of the sum of all versions after `held`, without gamma code and with it."""
        replica = publisher.replica
        change = self._counts[replica.version] - self._counts.get(held, np.int32(0))
        moved = np.flatnonzero(change)
        frame = replica.jump_frame((held, 0), Steps(change.size, moved, change[moved]), exact=False)
        return older_size(frame, replica.layout), frame.size

    def _jump_from_origin(self, publisher: Publisher) -> tuple[int, int]:
        now = publisher.replica.version
        if self._from_origin[0] != now:
            older, today = self._jump(publisher, 0) if now else (0, 0)
            self._from_origin = (now, older, today)
        return self._from_origin[1:]


@contextlib.contextmanager
def counted() -> Generator[Count]:
    """Count the messages of the runs of the block."""
    count = Count()
    publish, pack, parse = Publisher.publish, PublishedModel.pack, Publisher.parse_reply

    def published(publisher: Publisher, *arguments: Any, **keywords: Any) -> None:
        publish(publisher, *arguments, **keywords)
        count.version(publisher)

    def packed(model: PublishedModel, message: Message, *arguments: Any) -> dict[str, int]:
        held = model.publisher.nodes[message.metadata.dst_node_id].version
        sent = pack(model, message, *arguments)
        count.message(model, held, sent)
        return sent

    def parsed(publisher: Publisher, node: int, data: bytes) -> Reply:
        reply = parse(publisher, node, data)
        count.reply(data, reply, publisher.replica.layout)
        return reply

    with (
        patch.object(Publisher, "publish", published),
        patch.object(PublishedModel, "pack", packed),
        patch.object(Publisher, "parse_reply", parsed),
    ):
        yield count


def measure(nodes: int, downlink: str, rounds: int, config: dict[str, Any]) -> list[dict[str, object]]:
    """Return a row for each way and for what was sent; of a balanced run, for what was sent alone."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), counted() as count:
        config = {
            **config, "uplink": STC, "downlink": downlink, "num-rounds": rounds, "evaluate-every": max(1, rounds // 20),
            "fraction-train": min(1.0, (A_ROUND + 1e-9) / nodes), "runs-dir": folder, "run-name": "run",
        }  # fmt: skip
        run(LocalGrid(client_app, nodes, config, in_memory=True), config, draws=False)
        records = [json.loads(line) for line in Path(folder, "run", "rounds.jsonl").read_text().splitlines()]
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    if (summary["uplink_bytes"], summary["downlink_bytes"]) != (count.up[SENT], count.down[SENT]):
        raise RuntimeError("the bytes of the messages are not those of the run")
    common = {
        "plain_up": summary["dense_uplink_bytes"],
        "plain_down": summary["dense_downlink_bytes"],
        "accuracy": statistics.fmean([one["accuracy"] for one in records if one["accuracy"] is not None][-LAST:]),
    }
    names = {way: way for way in (*WAYS, SENT)} if downlink == STC else {SENT: BALANCE}
    return [
        {"nodes": nodes, "rounds": rounds, "way": name, "up": count.up[way], "down": count.down[way], **common}
        for way, name in names.items()
    ]


def table(results: pd.DataFrame) -> list[dict[str, str]]:
    """Return a row for each way: how many times fewer bytes than plain Flower it takes down, and in brackets both ways."""
    rows: dict[str, dict[str, str]] = {}
    for one in rows_of(results.sort_values(by="nodes", ascending=False, kind="stable")):
        if one["way"] != SENT:
            down = one["plain_down"] / one["down"]
            both = (one["plain_up"] + one["plain_down"]) / (one["up"] + one["down"])
            row = rows.setdefault(one["way"], {"way": one["way"]})
            row[f"{A_ROUND / one['nodes']:.2%} of nodes"] = f"{down:.3g} ({both:.3g})"
    return list(rows.values())


def rows_of(results: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows, each by the names of its columns."""
    return [{str(name): row[name] for name in results.columns} for _, row in results.iterrows()]


def accuracies(results: pd.DataFrame) -> list[dict[str, str]]:
    """Return the accuracy of each run in percent."""
    return [
        {
            "nodes": one["nodes"],
            "downlink": STC if one["way"] == SENT else BALANCED,
            "accuracy": f"{100 * one['accuracy']:.1f}",
        }
        for one in rows_of(results)
        if one["way"] in (SENT, BALANCE)
    ]


def main() -> None:
    """Measure what FILE lacks, and print the table and the accuracies."""
    parser = new_parser("python -m benchmarks.catching_up", __doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--nodes", type=int, nargs="+", default=[400, 100, 50, 10, 5])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = {
        **app_of(ROOT)["config"], "dataset": "fashion-mnist", "model": "cnn", "partition": "stc(classes=2)",
        "data-dir": str(options.data_dir.expanduser().absolute()), "batch-size": 20, "learning-rate": 0.05,
        "momentum": 0.0, "local-steps": 1, "device": "cpu", "num-threads": 1, "seed": 0,
    }  # fmt: skip
    known = options.out and options.out.exists()
    results = pd.read_csv(options.out) if known else pd.DataFrame(columns=["nodes", "rounds", "way"])
    if known and {*results["rounds"]} != {options.rounds}:
        parser.error(f"{options.out} has runs of other than {options.rounds} rounds; name another FILE")
    for nodes in options.nodes:
        for downlink, way in ((STC, SENT), (BALANCED, BALANCE)):
            if ((results["nodes"] == nodes) & (results["way"] == way)).any():
                continue
            rows = pd.DataFrame(measure(nodes, downlink, options.rounds, config))
            results = pd.concat([results, rows], ignore_index=True)
            if options.out:
                results.to_csv(options.out, index=False)
    title = "how many times fewer bytes than plain Flower: down (up and down)"
    print_table(title, table(results))
    print()
    print_table(f"accuracy in percent, mean of the last {LAST} evaluations", accuracies(results))


if __name__ == "__main__":
    main()
