"""One cell of a study: a whole run of the Flower app on `LocalGrid`, the code and the bytes of ``flwr run``."""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.study.plan import Cell
from benchmarks.study.results import Row
from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from server.app import app as server_app

Done = Callable[[int], None]
"""Told, as they come, how many rounds are done."""


class Watched(LocalGrid):
    """A `LocalGrid` that tells how far it is; `client_seconds` holds the mean seconds of a node, round by round."""

    def __init__(self, app: ClientApp, cell: Cell, config: dict[str, str | int | float | bool], done: Done) -> None:
        """Make the nodes of `cell`."""
        super().__init__(app, cell.clients, config, in_memory=True)
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


def run_cell(cell: Cell, data_dir: str, done: Done = lambda _: None) -> list[Row]:
    """Return the rows of a cell, once it has run; raises what the app raises."""
    with tempfile.TemporaryDirectory(prefix="fedcomp-study-") as folder:
        config = cell.config() | {"data-dir": data_dir, "runs-dir": folder, "run-name": "cell"}
        grid = Watched(client_app, cell, config, done)
        with contextlib.redirect_stdout(io.StringIO()):
            server_app(grid, Context(1, 0, {}, RecordDict(), dict(config)))
        lines = (Path(folder) / "cell" / "rounds.jsonl").read_text().splitlines()
    return list(_rows(cell, [json.loads(line) for line in lines], grid.client_seconds))


def _rows(cell: Cell, rounds: list[dict[str, float]], client_seconds: list[float]) -> Iterable[Row]:
    """Yield a row for each evaluated round, with sums since the start."""
    settings = cell.settings
    sums = dict.fromkeys(SUMMED, 0) | {"server_seconds": 0.0}
    spent = 0.0
    for line in rounds:
        number = int(line["round"])
        for key in sums:
            sums[key] += line[key]
        spent += client_seconds[number - 1] if number else 0.0
        if line["accuracy"] is None:
            continue
        yield Row(
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
            accuracy=line["accuracy"],
            loss=line["loss"],
            client_seconds=round(spent, 4),
            **{key: round(value, 4) if key == "server_seconds" else int(value) for key, value in sums.items()},  # type: ignore[arg-type]
        )


SUMMED = (
    "uplink_bytes",
    "downlink_bytes",
    "catch_up_bytes",
    "dense_uplink_bytes",
    "dense_downlink_bytes",
    "slowest_uplink_bytes",
    "slowest_downlink_bytes",
)
