"""A record of what runs in a federation's folder, so that another command finds it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deploy.federation import Federation, end_all
from deploy.program import Program
from deploy.run_config import LaunchError
from fedcomp.core import write_atomically

NAME = "federation.json"


class ProcessFile(BaseModel):
    """A federation that was started: its mark, its addresses, the ids of its nodes, and its programs.

    `processes` maps the name of a program to its process id, start time and log: the SuperLink, then the SuperNodes.
    Other processes are found by the mark; an empty one would match those of every federation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    mark: Annotated[str, Field(pattern="^[0-9a-f]{32}/$")]
    address: str
    health_address: str
    node_ids: list[str]
    processes: dict[str, tuple[Annotated[int, Field(ge=0)], float, str]]
    data_dir: str = ""
    """The folder with data that all nodes read; empty if each node has its own."""

    @model_validator(mode="after")
    def _check_count(self) -> "ProcessFile":
        if len(self.processes) != len(self.node_ids) + 1:
            raise ValueError(f"{len(self.processes)} processes of {len(self.node_ids)} nodes and a SuperLink")
        return self

    @classmethod
    def of(cls, federation: Federation, data: Path | None = None) -> "ProcessFile":
        """Return the record of `federation` as it is now; `data` is the folder that all of its nodes read."""
        return cls(
            mark=federation.mark,
            address=federation.superlink.address,
            health_address=federation.superlink.health_address,
            node_ids=[node.node_id for node in federation.nodes],
            processes={each.name: (each.pid, each.start_time, str(each.log)) for each in federation.programs},
            data_dir=str(data or ""),
        )

    @classmethod
    def read(cls, folder: Path) -> "ProcessFile | None":
        """Return the record in `folder`, or `None` if there is none; raise `LaunchError` if it cannot be read."""
        path = folder / NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            found = error.strerror
        except ValidationError as error:
            first = error.errors()[0]
            found = ": ".join(map(str, (*first["loc"], first["msg"])))
        raise LaunchError(f"{path} cannot be read ({found}); a record of `deploy/local up` is needed")

    def write(self, folder: Path) -> None:
        """Write the record to `folder`."""
        text = self.model_dump_json(indent=1) + "\n"
        write_atomically(folder / NAME, lambda file: file.write(text.encode()))

    def programs(self) -> list[Program]:
        """Return the SuperLink, then the SuperNodes."""
        return [
            Program(name, f"{self.mark}{name.lower().replace('supernode ', 'node-')}/", Path(log), pid, start_time)
            for name, (pid, start_time, log) in self.processes.items()
        ]

    def running(self) -> bool:
        """Return whether any process of the federation is alive."""
        return any(program.processes() for program in self.programs())

    def end(self) -> None:
        """End all processes of the federation."""
        end_all(self.programs(), self.mark)
