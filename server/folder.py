"""The folder of a run: created for a new run, or reopened to resume one; no run overwrites another."""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from fedcomp.core import write_atomically
from server.run_records import RoundRecord, from_row, to_row
from server.settings import Settings

FREE_ON_RESUME = frozenset(  # the settings that may change when a run is resumed
    {
        "num-rounds", "data-dir", "device", "num-threads", "evaluate-every", "min-nodes",
        "runs-dir", "checkpoint-every", "resume", "round-timeout", "node-timeout",
    }
)  # fmt: skip
ADDED_SINCE_0_1 = {"weighting": "examples"}
"""Settings that an older run does not name, with the values that describe it."""


class RunFolder:
    """The files of one run; each file but `rounds` is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "settings.json"  # the run config
        self.rounds = path / "rounds.jsonl"  # the rounds so far, one line each
        self.nodes = path / "nodes.json"  # the current status of the run and of each node
        self.checkpoint = path / "checkpoint"  # the state of the strategy
        self.summary = path / "summary.json"  # the results, written when the run has ended

    def append(self, record: RoundRecord) -> None:
        """Add a line to the rounds."""
        with self.rounds.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_row(record), allow_nan=False) + "\n")

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Write a JSON file."""
        self.write(name, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file that every user may read; a reader sees the old one or the new one."""
        write_atomically(self.path / name, lambda file: file.write(data), mode=0o644)

    def records(self) -> list[RoundRecord]:
        """Return the rounds so far."""
        return [from_row(RoundRecord, json.loads(line)) for line in self._lines()]

    def keep_rounds(self, last: int) -> None:
        """Drop the lines of rounds after `last`, and a line that was cut short: the checkpoint does not include them."""
        kept = [line for line in self._lines() if line.endswith("\n") and json.loads(line)["round"] <= last]
        self.write(self.rounds.name, "".join(kept).encode())

    def _lines(self) -> list[str]:
        return self.rounds.read_text(encoding="utf-8").splitlines(keepends=True) if self.rounds.exists() else []


def create_folder(settings: Settings) -> RunFolder:
    """Return a new folder, named after the run or numbered after the dataset; raise `ValueError` if that is impossible."""
    runs, name = Path(settings.runs_dir).expanduser().absolute(), settings.run_name
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for new in [name] if name else (f"{settings.dataset}-{number:03}" for number in count(1)):
            folder = RunFolder(runs / new)
            try:
                folder.path.mkdir()
            except FileExistsError:
                continue
            folder.write_json(folder.settings.name, settings.to_config())
            return folder
    except OSError as error:
        raise ValueError(f"runs-dir is {str(runs)!r}; a writable folder is needed ({error.strerror})") from None
    raise ValueError(f"{runs / name} holds a run already; choose another run-name, or resume it with resume=true")


def reopen_folder(settings: Settings) -> RunFolder:
    """Return the folder of the run to resume; raise `ValueError` for other settings, and for a run without checkpoints.

    A run that ended before its first checkpoint starts again.
    """
    folder = RunFolder(Path(settings.runs_dir).expanduser().absolute() / settings.run_name)
    if not folder.settings.exists():
        raise ValueError(f"resume is true, but there is no run {settings.run_name!r} in {folder.path.parent}")
    before = ADDED_SINCE_0_1 | json.loads(folder.settings.read_text(encoding="utf-8"))
    if not folder.checkpoint.exists() and not before["checkpoint-every"]:
        raise ValueError(f"{folder.path} has no checkpoint; a run with checkpoint-every above 0 is needed to resume")
    for key, value in settings.to_config().items():
        if key not in FREE_ON_RESUME and before.get(key) != value:
            raise ValueError(f"{key} is {value!r}; {before.get(key)!r}, as run {settings.run_name!r} has it, is needed")
    return folder
