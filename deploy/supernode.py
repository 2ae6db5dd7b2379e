"""A SuperNode: its folder with key, data and state, and its process."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from deploy.environment import environment, free_ports
from deploy.keys import make_node
from deploy.program import Program, end, wait_until
from deploy.run_config import Config, LaunchError, to_toml

REFUSED = "Failed to activate SuperNode"
PORT_TAKEN = "address already in use"
AGAIN_S = 3.0


@dataclass
class SuperNode:
    """One SuperNode.  `config` is its --node-config, and `superlink` the address by which it reaches the SuperLink.

    Both may be changed before each start.  A proxy may stand in between: the certificate is for 127.0.0.1, any port.
    """

    number: int
    folder: Path
    program: Program
    config: Config
    superlink: str = ""
    node_id: str = ""
    env: dict[str, str] = field(default_factory=dict)
    _log_start: int = 0

    @classmethod
    def make(cls, number: int, count: int, folder: Path, mark: str) -> "SuperNode":
        """Return node `number` of `count`, with all its own in `folder`: a key is made if there is none."""
        data, state = folder / "data", folder / "state"
        for needed in (folder / "home", data, state):
            needed.mkdir(parents=True, exist_ok=True)
        if not (folder / "key").exists():
            make_node(folder / "key")
        config: Config = {"partition-id": number, "num-partitions": count}
        config |= {"data-dir": str(data), "state-dir": str(state)}
        return cls(number, folder, Program(f"SuperNode {number}", mark, folder / "supernode.log"), config)

    @property
    def public_key(self) -> Path:
        """The file that is registered at the SuperLink."""
        return self.folder / "key" / "node.pub"

    def start(self, authority: Path) -> None:
        """Start the process, and do not wait until the SuperLink, whose certificate `authority` verifies, lets it in."""
        if self.program.running():
            raise LaunchError(f"{self.program.name} runs already")
        end([self.program], grace_s=0)  # what a killed one left
        settings = self.folder / "node.toml"  # on the command line, a path with quotation marks would not come through
        settings.write_text(to_toml(self.config))
        [port] = free_ports(1)
        command = ["flower-supernode", "--superlink", self.superlink, "--root-certificates", str(authority)]
        command += ["--auth-supernode-private-key", str(self.folder / "key" / "node.key")]
        command += ["--node-config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
        self._log_start = self.program.log.stat().st_size if self.program.log.exists() else 0
        self.program.start(command, self.folder, environment(self.folder / "home") | self.env)

    def wait(self, authority: Path, timeout_s: float) -> None:
        """Return once the SuperLink has let this node in; raise `LaunchError` if it does not within `timeout_s`.

        After kill -9 the SuperLink refuses a node's return until it has missed its heartbeat, up to a minute later; a
        SuperNode that is refused ends.  So it is started again every few seconds, as a service manager would do.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            wait_until(lambda: self.connected() or not self.program.running(), deadline - time.monotonic())
            if self.connected() and self.program.running():
                return
            said = self.said()
            if time.monotonic() > deadline or (REFUSED not in said and PORT_TAKEN not in said):
                raise LaunchError(f"{self.program.name} did not connect: {_reason(said)}")
            time.sleep(AGAIN_S)
            self.start(authority)

    def connected(self) -> bool:
        """Return whether this start of the node was let in by the SuperLink."""
        return re.search(r"SuperNode ID: \d", self.said()) is not None

    def said(self) -> str:
        """Return what this start of the node has logged."""
        if not self.program.log.exists():
            return ""
        return self.program.log.read_bytes()[self._log_start :].decode(errors="replace")


def _reason(said: str) -> str:
    """Return the line that names the reason, or the last one."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in said.split("\n")]
    named = [line for line in lines if line.startswith("[code:") or "Error" in line]
    return (named or [line for line in lines if line] or ["it wrote no log"])[-1]
