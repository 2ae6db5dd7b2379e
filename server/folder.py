"""A run's folder: made fresh, or taken up again, and never another run's."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server.round_record import RoundRecord
from server.settings import Settings

FREE_ON_RESUME = frozenset(  # what may change when a run goes on; anything else would make it another run
    {
        "num-rounds", "data-dir", "device", "num-threads", "evaluate-every", "min-nodes",
        "runs-dir", "checkpoint-every", "resume", "round-timeout", "node-timeout",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run; those that are rewritten are replaced in one step."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Where the strategy keeps its state."""
        return self.path / "checkpoint"

    @property
    def rounds(self) -> Path:
        """A line a round."""
        return self.path / "rounds.jsonl"

    @property
    def nodes(self) -> Path:
        """How the run and each of its nodes stand now."""
        return self.path / "nodes.json"

    @property
    def summary(self) -> Path:
        """What came of it: there once the run has ended."""
        return self.path / "summary.json"

    @property
    def settings(self) -> Path:
        """The run config."""
        return self.path / "settings.json"

    def append(self, record: Mapping[str, object]) -> None:
        """Add a line to the rounds, whole and at once."""
        with self.rounds.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Write a JSON file."""
        self.write(name, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file, so that a reader sees the old one or the new one and nothing between."""
        partial = self.path / f".{name}.partial"
        partial.write_bytes(data)
        os.replace(partial, self.path / name)  # noqa: PTH105

    def records(self) -> list[RoundRecord]:
        """Return the rounds so far."""
        lines = self.rounds.read_text(encoding="utf-8").splitlines() if self.rounds.exists() else []
        return [RoundRecord(**json.loads(line)) for line in lines]

    def keep_rounds(self, last: int) -> None:
        """Drop the lines of rounds after `last`: the checkpoint that the run goes on from does not know them."""
        lines = self.rounds.read_text(encoding="utf-8").splitlines(keepends=True) if self.rounds.exists() else []
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["round"] <= last]
        self.write(self.rounds.name, "".join(kept).encode())


def create_folder(settings: Settings) -> RunFolder:
    """Return a new folder: the run's name, or the dataset's with the next number; raise `ValueError` if it is taken."""
    runs = Path(settings.runs_dir).expanduser().absolute()
    try:
        runs.mkdir(parents=True, exist_ok=True)
        path = _named(runs, settings.run_name) if settings.run_name else _numbered(runs, settings.dataset)
    except OSError as error:
        raise ValueError(
            f"runs-dir is {str(runs)!r}; a folder that can be written is needed ({error.strerror})"
        ) from None
    folder = RunFolder(path)
    folder.write_json(folder.settings.name, settings.to_config())
    return folder


def reopen_folder(settings: Settings) -> RunFolder:
    """Return the folder of the run to go on with; raise `ValueError` for other settings, or if it never wrote checkpoints.

    A run that was ended before its first checkpoint has none, and begins anew.
    """
    folder = RunFolder(Path(settings.runs_dir).expanduser().absolute() / settings.run_name)
    if not folder.settings.exists():
        raise ValueError(f"resume is true, but there is no run {settings.run_name!r} in {folder.path.parent}")
    before = json.loads(folder.settings.read_text(encoding="utf-8"))
    if not folder.checkpoint.exists() and not before["checkpoint-every"]:
        raise ValueError(f"{folder.path} has no checkpoint; a run with checkpoint-every above 0 is needed to resume")
    for key, value in settings.to_config().items():
        if key not in FREE_ON_RESUME and before.get(key) != value:
            raise ValueError(f"{key} is {value!r}; run {settings.run_name!r} goes on with {before.get(key)!r}")
    return folder


def _named(runs: Path, name: str) -> Path:
    path = runs / name
    try:
        path.mkdir()
    except FileExistsError:
        raise ValueError(
            f"{path} holds a run already; choose another run-name, or go on with it by resume=true"
        ) from None
    return path


def _numbered(runs: Path, stem: str) -> Path:
    number = 1
    while True:
        path = runs / f"{stem}-{number:03}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
