"""One cell of a study: a complete run of the Flower app on `LocalGrid`, with the code and the bytes of ``flwr run``.

A run diverges when numbers leave the range that can be sent. Nodes and server refuse them, so the app goes on with fewer
nodes, or with none and a model that does not change. Plain averaging would have accepted them and lost the model. In a study,
the rows of such a run end with the first round in which that happens, which has no accuracy.
"""

import contextlib
import io
import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import Message

from clients.app import app as client_app
from clients.devices import pick_device
from clients.local import LocalPlan, train
from clients.samples import own_card, own_samples
from experiments.configuration import Cell, Value
from experiments.results import COLUMNS, SETTINGS, SLOWEST, TRAFFIC
from fedcomp.errors import DivergedError, NonFiniteError, NoUpdateError
from fedcomp.flower import LocalGrid
from fedcomp.tasks import build_model, input_shape
from server.app import NO_RESULT, run

DIVERGED = re.compile("|".join(rf"\b{kind.__name__}\b" for kind in (DivergedError, NonFiniteError)))
"""A node's errors arrive as text that begins with the name of their class."""


class Enough(Exception):
    """The rounds that were asked for are over."""


class StudyGrid(LocalGrid):
    """A `LocalGrid` that ends the run at a node's first error; `client_seconds` are the mean seconds of a node by round.

    Raises `DivergedError` for numbers that are not finite, `RuntimeError` for any other error of a node, and `Enough` for a
    round after `rounds`.
    """

    def __init__(self, cell: Cell, config: dict[str, Value], rounds: int | None = None) -> None:
        device = pick_device(str(config["device"]))
        # On the CPU count the thread's own time, because other processes keep the machine busy; it leaves out a GPU's work.
        clock = time.thread_time if device.type == "cpu" else time.perf_counter
        super().__init__(client_app, cell.clients, config, in_memory=True, clock=clock)
        self.client_seconds: list[float] = []
        self.rounds = rounds

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp on each message."""
        messages = list(messages)
        train = bool(messages) and messages[0].metadata.message_type.startswith("train")
        if train and len(self.client_seconds) == self.rounds:
            raise Enough
        ids = super().push_messages(messages)
        if train:
            self.client_seconds.append(fmean(self.seconds[-1].values()) if self.seconds[-1] else 0.0)
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


def run_cell(cell: Cell, data_dir: str, scratch: Path | None = None, rounds: int | None = None) -> pd.DataFrame:
    """Run a cell, and return its rows, with the columns of `results.COLUMNS`; raises what the app raises.

    With `rounds`, it ends after that many, as the beginning of the whole run.

    If the run diverged, its last row is that of the round in which it did: without accuracy and loss, with the bytes until
    then. `scratch` is the folder for temporary files; by default the system's.
    """
    with tempfile.TemporaryDirectory(prefix="fedcomp-study-", dir=scratch) as folder:
        config = {**cell.config(), "data-dir": data_dir, "runs-dir": folder, "run-name": "cell"}
        grid = StudyGrid(cell, config, rounds)
        _warm_up(cell, config)
        failure: Exception | None = None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run(grid, dict(config), draws=False)
        except Enough:
            pass
        except (DivergedError, NoUpdateError) as error:
            failure = error
        except RuntimeError as error:
            if NO_RESULT not in str(error):
                raise
            failure = error
        lines = (Path(folder) / "cell" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    whole = list(takewhile(_is_whole, records))
    diverged = isinstance(failure, DivergedError) or len(whole) < len(records)
    if failure is not None and not diverged:
        raise failure
    return _rows(cell, whole, grid.client_seconds, diverged)


def _is_whole(record: Mapping[str, Any]) -> bool:
    """Return whether all updates of a round could be used, and its loss, if it was evaluated, is a number."""
    evaluated = record["accuracy"] is not None
    return not record["no_result"] and not record["refused"] and not (evaluated and record["loss"] is None)


def _warm_up(cell: Cell, config: Mapping[str, Value]) -> None:
    """Prepare all samples and train once, so that work that a process does only once is not counted as a node's time."""
    device = pick_device(str(config["device"]))
    card = own_card(str(config["dataset"]))
    model = build_model(str(config["model"]), input_shape(card), card.num_classes, 0).to(device)
    plan = LocalPlan(1, 2, int(config["batch-size"]), 0.01, 0.0, 0.0)
    for number in range(cell.clients):
        x, y = own_samples(config, {"partition-id": number, "num-partitions": cell.clients}, device)
        if number < 2:
            train(model, x, y, plan, np.random.default_rng(0))


def _rows(cell: Cell, records: list[dict[str, object]], client_seconds: list[float], diverged: bool) -> pd.DataFrame:
    """Return a row for each evaluated round, with sums since the start."""
    if diverged:  # the round that failed has no record
        records = [*records, {"round": len(records)}]
    table = pd.DataFrame(records).astype({"accuracy": float, "loss": float})
    evaluated = table["accuracy"].notna() | (diverged & (table["round"] == len(records) - 1))
    sums = table.reindex(columns=[*TRAFFIC, *SLOWEST, "server_seconds"]).fillna(0).cumsum()
    seconds = np.cumsum([0.0, *client_seconds, *[0.0] * len(records)])[: len(records)]
    settings = {
        **{key.replace("-", "_"): value for key, value in cell.settings.items()},
        "cell": cell.name,
        "method": cell.label,
        "participation": cell.clients_per_round / cell.clients,
    }
    table = table.assign(
        **{name: settings[name] for name in SETTINGS},
        **sums.round(4),
        iterations=table["round"] * cell.local_steps,
        client_seconds=seconds.round(4),
    )
    return table.loc[evaluated, list(COLUMNS)].astype(COLUMNS).reset_index(drop=True)
