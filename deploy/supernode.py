"""A SuperNode: its folder with key, data and state, and its process."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from deploy.environment import environment, free_ports
from deploy.keys import make_node
from deploy.program import Program, end, wait_until
from deploy.run_config import Config, LaunchError, to_toml
from deploy.superlink import PORT_TAKEN

REFUSED = "Failed to activate SuperNode"
RETRY_S = 3.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class SuperNode:
    """One SuperNode.  `config` is its --node-config, and `superlink` the address at which it reaches the SuperLink.

    Both may change before each start.  A proxy may be in between: the certificate is for 127.0.0.1 and any port.
    """

    number: int
    folder: Path
    program: Program
    config: Config
    superlink: str = ""
    node_id: str = ""
    env: dict[str, str] = field(default_factory=dict[str, str])
    _log_offset: int = 0

    @classmethod
    def make(cls, number: int, count: int, folder: Path, mark: str) -> "SuperNode":
        """Return node `number` of `count`, with all that it owns in `folder`; its key is made if there is none."""
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
        """The file to register at the SuperLink."""
        return self.folder / "key" / "node.pub"

    def start(self, authority: Path) -> None:
        """Start the process without waiting for the SuperLink, whose certificate `authority` verifies."""
        if self.program.running():
            raise LaunchError(f"{self.program.name} runs already")
        end([self.program], grace_s=0)  # what a killed one left
        settings = self.folder / "node.toml"  # on the command line, quotation marks in a path would be lost
        settings.write_text(to_toml(self.config))
        [port] = free_ports(1)
        command = ["flower-supernode", "--superlink", self.superlink, "--root-certificates", str(authority)]
        command += ["--auth-supernode-private-key", str(self.folder / "key" / "node.key")]
        command += ["--node-config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
        self._log_offset = self.program.log.stat().st_size if self.program.log.exists() else 0
        self.program.start(command, self.folder, environment(self.folder / "home") | self.env)

    def wait(self, authority: Path, timeout_s: float) -> None:
        """Return once the SuperLink has accepted this node; raise `LaunchError` if it does not within `timeout_s`.

        After kill -9 the SuperLink refuses a node until it has missed its heartbeats, up to a minute later, and a
        SuperNode that is refused ends.  So it is started again every few seconds, as a service manager would do.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            wait_until(lambda: self.connected() or not self.program.running(), deadline - time.monotonic())
            if self.connected() and self.program.running():
                return
            log_text = self.log_text()
            if time.monotonic() > deadline or (REFUSED not in log_text and PORT_TAKEN not in log_text):
                raise LaunchError(f"{self.program.name} did not connect: {_reason(log_text)}")
            time.sleep(RETRY_S)
            self.start(authority)

    def connected(self) -> bool:
        """Return whether the SuperLink has accepted the node since its last start."""
        return re.search(r"SuperNode ID: \d", self.log_text()) is not None

    def log_text(self) -> str:
        """Return what the node has logged since its last start."""
        if not self.program.log.exists():
            return ""
        return self.program.log.read_bytes()[self._log_offset :].decode(errors="replace")


def _reason(log_text: str) -> str:
    """Return the last line that names an error, or else the last line."""
    lines = [line.strip() for line in ANSI.sub("", log_text).split("\n") if line.strip()]
    errors = [line for line in lines if line.startswith("[code:") or "Error" in line]
    return (errors or lines or ["it wrote no log"])[-1]
