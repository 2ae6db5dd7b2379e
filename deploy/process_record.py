"""A record of what runs in a federation's folder, so that another command finds it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.federation import Federation, end_all
from deploy.program import Program
from deploy.run_config import LaunchError
from fedcomp.core import write_atomically

NAME = "federation.json"
MARK_LENGTH = 33


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A federation that was started: its mark, its addresses, the ids of its nodes, and its programs.

    `processes` maps the name of a program to its process id, start time and log; other processes are found by mark.
    """

    mark: str
    address: str
    health_address: str
    node_ids: list[str]
    processes: dict[str, tuple[int, float, str]]
    data_dir: str = ""
    """The folder with data that all nodes read; empty if each node has its own."""

    @classmethod
    def of(cls, federation: Federation, data: Path | None = None) -> "ProcessRecord":
        """Return the record of `federation` as it is now; `data` is the folder that all of its nodes read."""
        superlink = federation.superlink
        processes = {each.name: (each.pid, each.start_time, str(each.log)) for each in federation.programs}
        ids = [node.node_id for node in federation.nodes]
        return cls(federation.mark, superlink.address, superlink.health_address, ids, processes, str(data or ""))

    @classmethod
    def read(cls, folder: Path) -> "ProcessRecord | None":
        """Return the record in `folder`, or `None` if there is none; raise `LaunchError` if it cannot be read."""
        path = folder / NAME
        try:
            record = cls(**json.loads(path.read_bytes()))
            record.programs()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (TypeError, ValueError, AttributeError, OSError) as error:
            raise LaunchError(f"{path} cannot be read ({error}); a record of `deploy/local up` is needed") from None
        return record

    def write(self, folder: Path) -> None:
        """Write the record to `folder`."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_atomically(folder / NAME, lambda file: file.write(text.encode()))

    def programs(self) -> list[Program]:
        """Return the SuperLink, then the SuperNodes; raise `ValueError` or `TypeError` for an impossible record."""
        if len(self.mark) < MARK_LENGTH or not self.mark.endswith("/"):  # an empty one would match every federation
            raise ValueError(f"its mark is {self.mark!r}")
        if len(self.processes) != len(self.node_ids) + 1:
            raise ValueError(f"{len(self.processes)} processes of {len(self.node_ids)} nodes and a SuperLink")
        found: list[Program] = []
        for name, (pid, start_time, log) in self.processes.items():
            part = name.lower().replace("supernode ", "node-")
            found.append(Program(name, f"{self.mark}{part}/", Path(log), int(pid), float(start_time)))
        return found

    def running(self) -> bool:
        """Return whether any process of the federation is alive."""
        return any(program.processes() for program in self.programs())

    def end(self) -> None:
        """End all processes of the federation."""
        end_all(self.programs(), self.mark)
