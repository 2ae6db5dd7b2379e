"""The files that a node writes for people and monitors, with the same names and rows as in a server's run.

A node counts the bytes that it sends as uplink, and the bytes that it receives as downlink.  `nodes.json` has a row for each
neighbour.  ``fedcomp monitor FOLDER`` shows these files.
"""

import errno
import json
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedcomp.core import write_atomically
from fedcomp.errors import CORRUPTION_ERRORS
from fedcomp.gossip.peers.set_aside import set_aside
from fedcomp.sync import Traffic

log = logging.getLogger("fedcomp.gossip")
DIGEST = "training-digest"
"""The entry of `settings.json` that differs between trainings."""
RUNNING, COMPLETED, FAILED, STOPPED = "running", "completed", "failed", "stopped"
MAX_REASON_CHARACTERS = 500
RESERVED = frozenset({"round", "seconds", "used", "neighbors", "traffic", "uplink", "downlink"}) | {
    item.name for item in fields(Traffic)
}
"""The names of a row that no result of a task may have."""
Amounts = Counter[str]
"""Bytes by the names of `fedcomp.sync.Traffic`."""


class RoundTraffic:
    """The bytes of all messages with each neighbour: ``len`` of what gRPC sends and receives.  Several threads may count.

    `dense_bytes` are the bytes of the model in float32.
    """

    def __init__(self, neighbors: Iterable[int], dense_bytes: int) -> None:
        self._dense_bytes, self._lock = dense_bytes, threading.Lock()
        self._neighbors = tuple(neighbors)
        self._new = {each: Amounts() for each in self._neighbors}

    def count(self, neighbor: int, **amounts: int) -> None:
        """Add bytes that were exchanged with a neighbour."""
        with self._lock:
            self._new[neighbor].update(amounts)

    def count_model(self, neighbor: int, name: str) -> None:
        """Count the dense bytes of a message: a float32 model."""
        self.count(neighbor, **{name: self._dense_bytes})

    def take(self) -> dict[int, Amounts]:
        """Return the amounts counted since the last call."""
        with self._lock:
            new, self._new = self._new, {each: Amounts() for each in self._neighbors}
            return new


class RoundLog:
    """The files of a node in `folder`, and the sums over the run.

    The files of a killed node are continued; the rounds of another training or node are set aside.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], neighbors: Collection[int]) -> None:
        self.folder, self._settings = folder, settings
        self._rounds, self._nodes = folder / "rounds.jsonl", folder / "nodes.json"
        self._forget(neighbors)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._rounds.exists() and self._has_others(settings):
            aside = set_aside(self._rounds)
            text = "%s is of another training or node; it is renamed to %s, and a new one begins"
            log.warning(text, self._rounds, aside.name)
        lines = self._rounds.read_bytes().splitlines(keepends=True) if self._rounds.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        try:
            for line in whole:
                self._add(json.loads(line))
        except (*CORRUPTION_ERRORS, AttributeError) as error:
            aside = set_aside(self._rounds)
            log.warning("%s is damaged: %r; it is renamed to %s, and a new one begins", self._rounds, error, aside.name)
            self._forget(neighbors)
            whole = []
        _write(self._rounds, b"".join(whole))

    def begin(self) -> None:
        """Write the settings, and that the run goes on."""
        _write(self.folder / "settings.json", json.dumps(self._settings, indent=2, default=str).encode())
        self.write_status(RUNNING)

    def _has_others(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the rounds in the folder are known to be of another training or node than that of `settings`."""
        try:
            before = json.loads((self.folder / "settings.json").read_bytes())
            return any(name in before and before[name] != settings[name] for name in (DIGEST, "node"))
        except (FileNotFoundError, *CORRUPTION_ERRORS):
            return False

    def _forget(self, neighbors: Collection[int]) -> None:
        self.total = {each: Amounts() for each in neighbors}
        self._heard, self._round = dict.fromkeys(neighbors, 0), 0

    def row(
        self,
        round_number: int,
        traffic: Mapping[int, Amounts],
        used: Collection[int],
        seconds: float,
        results: Mapping[str, float],
    ) -> dict[str, Any]:
        """Return the row of a round.

        `used` are the neighbours whose edges were used, and `results` the results of the task's `evaluate`; NaN and infinity
        are written as null.  Raises `ValueError` for a result with the name of another entry.
        """
        if taken := RESERVED & results.keys():
            raise ValueError(
                f"evaluate returns {min(taken)!r}, which is an entry of each round already; another name is needed"
            )
        numbers = {name: float(value) for name, value in results.items()}
        sums = sum(traffic.values(), Amounts())
        return {
            "round": round_number,
            "accuracy": None,
            "loss": None,
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            **sums,
            "seconds": round(seconds, 3),
            "used": list(used),
            "neighbors": {str(neighbor): dict(amounts) for neighbor, amounts in traffic.items()},
        }

    def append(self, row: Mapping[str, Any]) -> None:
        """Add the line of a round; if it cannot be written, raise `OSError` and change nothing."""
        with self._rounds.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                data = json.dumps(row).encode() + b"\n"
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._rounds))
            except OSError:
                file.truncate(end)
                raise
        self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self._round = row["round"]
        for neighbor, amounts in row["neighbors"].items():
            if int(neighbor) in self.total:
                self.total[int(neighbor)].update(amounts)
        for neighbor in row["used"]:
            self._heard[neighbor] = self._round

    def write_status(self, state: str, reason: str = "") -> None:
        """Replace `nodes.json`: the state of the run, and for each neighbour the last round with its edge and its traffic.

        `reason` says why a run has failed.
        """
        rows = [
            {"node": each, "heard": self._heard[each], "absent": self._heard[each] < self._round, **amounts}
            for each, amounts in self.total.items()
        ]
        progress = {"num_rounds": max(self._settings["rounds"], self._round), "version": self._round}
        status = {"state": state, "reason": reason[:MAX_REASON_CHARACTERS], **progress, "nodes": rows}
        _write(self._nodes, json.dumps(status).encode())


def _write(path: Path, data: bytes) -> None:
    write_atomically(path, lambda file: file.write(data))
