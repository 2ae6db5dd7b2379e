"""What runs in a federation's folder, written down so that another command finds it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.federation import Federation, end_all
from deploy.program import Program
from deploy.run_config import LaunchError

NAME = "federation.json"
MARK_LENGTH = 33


@dataclass(frozen=True, slots=True)
class Record:
    """A federation that was started: its mark, its addresses, its nodes' ids, and the processes that were started.

    A process has an id, a time of start and a log, by its program's name; what came of these is found by the mark.
    """

    mark: str
    address: str
    health_address: str
    node_ids: list[str]
    processes: dict[str, tuple[int, str, str]]
    data_dir: str = ""
    """The folder with data that all nodes read; empty: each its own."""

    @classmethod
    def of(cls, federation: Federation, data: Path | None = None) -> "Record":
        """Return the record of `federation` as it is now; `data` is what all of its nodes read."""
        started: dict[str, tuple[int, str, str]] = {}
        for program in federation.programs:
            pid, start = program.process or (0, "not started")
            started[program.name] = (pid, start, str(program.log))
        health = f"127.0.0.1:{federation.health_port}"
        ids = [node.node_id for node in federation.nodes]
        return cls(federation.mark, federation.address, health, ids, started, str(data or ""))

    @classmethod
    def read(cls, folder: Path) -> "Record | None":
        """Return the record in `folder`, or `None` if there is none; raise `LaunchError` if it cannot be read."""
        path = folder / NAME
        try:
            record = cls(**json.loads(path.read_bytes()))
            record.programs()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (TypeError, ValueError, AttributeError, OSError) as error:
            raise LaunchError(f"{path} cannot be read ({error}); what `deploy/local up` wrote is needed") from None
        return record

    def write(self, folder: Path) -> None:
        """Put the record into `folder`: whole, or the old one stays."""
        partial = folder / f".{NAME}"
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n")
        partial.replace(folder / NAME)

    def programs(self) -> list[Program]:
        """Return the SuperLink, then the SuperNodes; raise `ValueError` or `TypeError` for an impossible record."""
        if len(self.mark) < MARK_LENGTH or not self.mark.endswith("/"):  # an empty one would mean every federation
            raise ValueError(f"its mark is {self.mark!r}")
        if len(self.processes) != len(self.node_ids) + 1:
            raise ValueError(f"{len(self.processes)} processes of {len(self.node_ids)} nodes and a SuperLink")
        found = []
        for name, (pid, start, log) in self.processes.items():
            part = name.lower().replace("supernode ", "node-")
            found.append(Program(name, f"{self.mark}{part}/", Path(log), (int(pid), str(start))))
        return found

    def runs(self) -> bool:
        """Return whether any of it lives."""
        return any(program.processes() for program in self.programs())

    def end(self) -> None:
        """End all of it that lives."""
        end_all(self.programs(), self.mark)
