"""One cell of a study: a whole run of the Flower app on `LocalGrid`, the code and the bytes of ``flwr run``.

A run diverges when numbers leave float32.  Nodes and server refuse to send those, so the app would go on with fewer nodes,
or with none and a model that stays as it was.  Plain averaging would have taken them in and lost the model.  So a study ends
such a run there, and records what came of it: no accuracy.
"""

import contextlib
import io
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict

from clients.app import app as client_app
from clients.devices import pick_device
from clients.local import LocalPlan, train
from clients.samples import own_card, own_samples
from experiments.configuration import Cell, Value
from experiments.results import Row
from fedcomp.errors import DivergedError, NonFiniteError
from fedcomp.flower import LocalGrid
from fedcomp.tasks import build_model, input_shape
from server.app import app as server_app

DIVERGED = re.compile("|".join(rf"\b{kind.__name__}\b" for kind in (DivergedError, NonFiniteError)))
"""A node's errors arrive as text that begins with their class."""
COUNTED = (
    "uplink_bytes",
    "downlink_bytes",
    "catch_up_bytes",
    "dense_uplink_bytes",
    "dense_downlink_bytes",
    "slowest_uplink_bytes",
    "slowest_downlink_bytes",
)

Done = Callable[[int], None]
"""Told, as they come, how many rounds are done."""


class Watched(LocalGrid):
    """A `LocalGrid` that tells how far it is; `client_seconds` holds the mean seconds of a node, round by round.

    An error of a node ends the run: `DivergedError` for numbers that are not finite, `RuntimeError` for anything else.
    """

    def __init__(self, cell: Cell, config: dict[str, Value], done: Done) -> None:
        """Make the nodes of `cell`."""
        device = pick_device(str(config["device"]))
        # A busy machine is not the node's matter: on the CPU, one thread's own time; a GPU's work is not in that.
        clock = time.thread_time if device.type == "cpu" else time.perf_counter
        super().__init__(client_app, cell.clients, config, in_memory=True, clock=clock)
        self.client_seconds: list[float] = []
        self._done = done

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp on each message."""
        messages = list(messages)
        ids = super().push_messages(messages)
        if messages and messages[0].metadata.message_type.startswith("train"):
            self.client_seconds.append(fmean(self.seconds[-1].values()) if self.seconds[-1] else 0.0)
            self._done(len(self.client_seconds))
        self.seconds.clear()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies."""
        replies = list(super().pull_messages(message_ids))
        for reply in replies:
            if reply.has_error():
                reason = str(reply.error.reason)
                if DIVERGED.search(reason):
                    raise DivergedError(reason)
                raise RuntimeError(f"node {reply.metadata.src_node_id} failed: {reason}")
        return replies


def run_cell(cell: Cell, data_dir: str, done: Done = lambda _: None) -> list[Row]:
    """Return the rows of a cell, once it has run; raises what the app raises.

    The last row of a run that diverged is of the round in which it did: without accuracy and loss, with the bytes until then.
    """
    with tempfile.TemporaryDirectory(prefix="fedcomp-study-") as folder:
        config = {**cell.config(), "data-dir": data_dir, "runs-dir": folder, "run-name": "cell"}
        rounds = Path(folder) / "cell" / "rounds.jsonl"
        grid = Watched(cell, config, done)
        _warm_up(cell, config)
        diverged = False
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                server_app(grid, Context(1, 0, {}, RecordDict(), dict(config)))
        except DivergedError:
            diverged = True
        lines = [json.loads(line) for line in rounds.read_text(encoding="utf-8").splitlines()]
    return list(_rows(cell, lines, grid.client_seconds, diverged))


def _warm_up(cell: Cell, config: Mapping[str, Value]) -> None:
    """Prepare all samples and train once for nothing: what a process does only once is no part of a node's time."""
    device = pick_device(str(config["device"]))
    card = own_card(str(config["dataset"]))
    model = build_model(str(config["model"]), input_shape(card), card.num_classes, 0).to(device)
    plan = LocalPlan(1, 2, int(config["batch-size"]), 0.01, 0.0, 0.0)
    for number in range(cell.clients):
        x, y = own_samples(config, {"partition-id": number, "num-partitions": cell.clients}, device)
        if number < 2:
            train(model, x, y, plan, np.random.default_rng(0))


def _rows(
    cell: Cell, rounds: list[dict[str, float | None]], client_seconds: list[float], diverged: bool
) -> Iterator[Row]:
    """Yield a row for each evaluated round, with sums since the start."""
    sums: dict[str, float] = dict.fromkeys((*COUNTED, "server_seconds"), 0.0)
    spent = 0.0
    for number, line in enumerate(rounds):  # the first is round 0, before training
        for key in sums:
            sums[key] += line[key] or 0
        spent += client_seconds[number - 1] if number else 0.0
        if line["accuracy"] is not None:
            yield _row(cell, number, sums, spent, line["accuracy"], line["loss"])
    if diverged:
        yield _row(cell, len(rounds), sums, spent, None, None)


def _row(
    cell: Cell, number: int, sums: Mapping[str, float], spent: float, accuracy: float | None, loss: float | None
) -> Row:
    settings = cell.settings
    counted: dict[str, Any] = {key: int(sums[key]) for key in COUNTED}
    return Row(
        cell=cell.name,
        method=cell.label,
        dataset=str(settings["dataset"]),
        model=str(settings["model"]),
        partition=str(settings["partition"]),
        clients=cell.clients,
        participation=cell.clients_per_round / cell.clients,
        local_steps=cell.local_steps,
        batch_size=int(settings["batch-size"]),
        learning_rate=float(settings["learning-rate"]),
        momentum=float(settings["momentum"]),
        seed=int(settings["seed"]),
        strategy=str(settings["strategy"]),
        uplink=str(settings["uplink"]),
        downlink=str(settings["downlink"]),
        round=number,
        iterations=number * cell.local_steps,
        accuracy=accuracy,
        loss=loss,
        client_seconds=round(spent, 4),
        server_seconds=round(sums["server_seconds"], 4),
        **counted,
    )
