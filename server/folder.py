"""The folder of a run: created for a new run, or reopened to resume one; no run overwrites another."""

import json
import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from fedcomp.core import naming, write_atomically
from server.run_records import RoundRecord, from_row, to_row
from server.settings import Settings

FREE_ON_RESUME = frozenset(  # the settings that may change when a run is resumed
    {
        "num-rounds", "data-dir", "device", "num-threads", "evaluate-every", "min-nodes",
        "runs-dir", "run-name", "checkpoint-every", "resume", "round-timeout", "node-timeout", "training", "client-momentum",
    }
)  # fmt: skip

NUM_PARTITIONS = "num-partitions"
"""The entry of `settings.json` with the number of partitions of the nodes, if they named one."""


class RunFolder:
    """The files of one run; each file but `rounds` is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "settings.json"  # the run config, and the number of partitions
        self.rounds = path / "rounds.jsonl"  # the rounds so far, one line each
        self.nodes = path / "nodes.json"  # the current status of the run and of each node
        self.checkpoint = path / "checkpoint"  # the state of the strategy
        self.summary = path / "summary.json"  # the results, written when the run has ended

    def append(self, record: RoundRecord) -> None:
        """Add a line to the rounds."""
        with naming(self.rounds), self.rounds.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_row(record), allow_nan=False) + "\n")

    def write_settings(self, settings: Settings, num_partitions: int | None) -> None:
        """Write the settings, and the number of partitions if it is known."""
        known = {} if num_partitions is None else {NUM_PARTITIONS: num_partitions}
        self.write_json(self.settings.name, {**settings.to_config(), **known})

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Write a JSON file."""
        self.write(name, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file that every user may read; a reader sees the old one or the new one."""
        write_atomically(self.path / name, lambda file: file.write(data), mode=0o644)

    def records(self) -> list[RoundRecord]:
        """Return the rounds so far; raise `ValueError` for a line that is no record of a round."""
        return [record for _, record in self._lines()]

    def keep_rounds(self, last: int) -> None:
        """Drop the lines of rounds after `last`, and a line that was cut short: the checkpoint does not include them."""
        self.write(self.rounds.name, "".join(line for line, record in self._lines() if record.round <= last).encode())

    def _lines(self) -> list[tuple[str, RoundRecord]]:
        """Return the lines that are whole, and their records."""
        lines: list[tuple[str, RoundRecord]] = []
        if not self.rounds.exists():
            return lines
        text = self.rounds.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            if line.endswith("\n"):
                try:
                    record = from_row(RoundRecord, json.loads(line))
                    if not isinstance(record.round, int):  # from_row takes any number, and none
                        raise TypeError(f"its round is {record.round}")
                    lines.append((line, record))
                except (ValueError, TypeError, RecursionError) as error:
                    raise ValueError(f"{self.rounds}: line {number} is no record of a round ({error})") from None
        return lines


def check_folder(settings: Settings) -> None:
    """Raise `ValueError` where `create_folder` or `reopen_folder` would; nothing is made or removed."""
    if settings.resume:
        _resumable(settings)
        return
    runs = Path(settings.runs_dir).expanduser().absolute()
    if settings.run_name and (runs / settings.run_name).exists() and not _is_empty(runs / settings.run_name):
        raise _taken(runs / settings.run_name)
    nearest = next(path for path in (runs, *runs.parents) if path.exists() or path.is_symlink())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise ValueError(f"runs-dir is {str(runs)!r}; a writable folder is needed ({nearest} is none)")


def create_folder(settings: Settings, num_partitions: int | None = None) -> RunFolder:
    """Return a new folder, named after the run or numbered after the dataset; raise `ValueError` if that is impossible.

    A start that is killed here leaves no folder of that name, but perhaps one named ``.<name>.<letters>.partial``.
    """
    runs, name = Path(settings.runs_dir).expanduser().absolute(), settings.run_name
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for new in [name] if name else (f"{settings.dataset}-{number:03}" for number in count(1)):
            if not (runs / new).exists() or _is_empty(runs / new):
                partial = RunFolder(runs / f".{new}.{uuid4().hex}.partial")
                try:
                    partial.write_settings(settings.model_copy(update={"run_name": new}), num_partitions)
                    return RunFolder(partial.path.rename(runs / new))
                except BaseException as error:
                    shutil.rmtree(partial.path, ignore_errors=True)
                    taken = (runs / new).exists() and not _is_empty(runs / new)  # by another run, just now
                    if not (isinstance(error, OSError) and taken):
                        raise
    except OSError as error:
        raise ValueError(f"runs-dir is {str(runs)!r}; a writable folder is needed ({error.strerror})") from None
    raise _taken(runs / name)


def can_resume(folder: RunFolder) -> bool:
    """Return whether a run has a checkpoint, or has finished no round and so starts again."""
    return folder.checkpoint.exists() or not (_last_round(folder) or folder.summary.exists())


def _last_round(folder: RunFolder) -> int:
    return max((record.round for record in folder.records()), default=0)


def _taken(path: Path) -> ValueError:
    folder = RunFolder(path)
    resumes = folder.settings.exists() and can_resume(folder)
    text = f"{path} holds a run already" if folder.settings.exists() else f"{path} exists, and is no empty folder"
    return ValueError(f"{text}; choose another run-name{', or resume it with resume=true' if resumes else ''}")


def reopen_folder(settings: Settings, num_partitions: int | None = None) -> RunFolder:
    """Return the folder of the run to resume; raise `ValueError` for other settings, and for a run without its checkpoint.

    The nodes must have as many partitions as before, where both numbers are known.  A run that ended before its first round
    did starts again.
    """
    folder = _resumable(settings)
    before = earlier_settings(folder).get(NUM_PARTITIONS)
    if folder.checkpoint.exists() and num_partitions is not None and before not in (None, num_partitions):
        raise ValueError(
            f"{NUM_PARTITIONS} of the nodes is {num_partitions}; {before}, as run {settings.run_name!r} has it, is needed: "
            "another number divides the samples differently"
        )
    for left in folder.path.glob(".*.partial"):  # by a server that was killed
        left.unlink()
    return folder


def _resumable(settings: Settings) -> RunFolder:
    """Return the folder of the run to resume; raise `ValueError` as `reopen_folder` does."""
    folder = RunFolder(Path(settings.runs_dir).expanduser().absolute() / settings.run_name)
    if not folder.settings.exists():
        raise ValueError(f"resume is true, but there is no run {settings.run_name!r} in {folder.path.parent}")
    before = earlier_settings(folder)
    if not can_resume(folder):
        if not before["checkpoint-every"]:
            raise ValueError(
                f"{folder.path} has no checkpoint; a run with checkpoint-every above 0 is needed to resume"
            )
        done = f"has finished round {last}" if (last := _last_round(folder)) else "has ended"
        raise ValueError(
            f"{folder.checkpoint} is missing, and the run {done}; put the file back, or start a run with another run-name"
        )
    for key, value in settings.to_config().items():
        if key not in FREE_ON_RESUME and before.get(key) != value:
            raise ValueError(f"{key} is {value!r}; {before.get(key)!r}, as run {settings.run_name!r} has it, is needed")
    return folder


def earlier_settings(folder: RunFolder) -> dict[str, Any]:
    """Return the settings with which a run was last started; raise `ValueError` if its file holds none."""
    path = folder.settings
    try:
        settings = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON ({error})") from None
    if not isinstance(settings, dict) or not {"checkpoint-every", "training"} <= settings.keys():
        raise ValueError(f"{path} holds {settings!r}; the settings of a run are needed")
    return cast(dict[str, Any], settings)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
