"""A SuperLink and a SuperNode on this machine: started on free loopback ports, and waited for until they work."""

import re
import ssl
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from deploy.environment import environment, free_ports
from deploy.keys import make_node
from deploy.program import Program, end, wait_until
from deploy.run_config import Config, LaunchError

STARTUP_TIMEOUT_S = 90.0
GRACE_S = 5.0
RETRY_S = 3.0
MAX_ATTEMPTS = 3
"""A port that was free may be taken by another program before the SuperLink listens."""
PORT_TAKEN = "address already in use"
REFUSED = "Failed to activate SuperNode"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class SuperLink:
    """One SuperLink; with an `authority`, the certificate that signed its own, it serves TLS."""

    program: Program
    flags: Sequence[str]
    authority: Path | None = None
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    """The port for nodes and `flwr`, and the port of the gRPC health endpoint."""

    @property
    def address(self) -> str:
        """The host and port for nodes and for `flwr`."""
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def health_address(self) -> str:
        """The host and port of the gRPC health endpoint."""
        return f"127.0.0.1:{self.ports[1]}"

    def start(self, folder: Path, env: Mapping[str, str]) -> None:
        """Start it in `folder`, and return when it answers; raise `LaunchError` if it does not."""
        _clear(self.program)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.ports[0]), *self.flags]
            self.program.start([*command, "--health-server-address", self.health_address], folder, env)
            wait_until(lambda: self.answers() or not self.program.running(), STARTUP_TIMEOUT_S)
            if self.program.running() and self.answers():
                return
            log_text = self.program.log_text().lower()
            end([self.program], GRACE_S)
            if PORT_TAKEN not in log_text or attempt == MAX_ATTEMPTS:
                raise LaunchError(f"the SuperLink did not start: {self.program.last_line()}")
            self.ports = free_ports(2)

    def answers(self) -> bool:
        """Return whether it answers, with a certificate that verifies if it serves TLS."""
        try:
            trust = ssl.create_default_context(cafile=str(self.authority)) if self.authority else None
            url = f"{'https' if trust else 'http'}://{self.address}/health"
            with urllib.request.urlopen(url, timeout=1, context=trust) as reply:  # noqa: S310
                return bool(reply.status == 200)
        except OSError:
            return False


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
    launchers: Path | None = None
    command: Sequence[str] = ("flower-supernode",)
    _log_offset: int = 0

    @classmethod
    def make(cls, number: int, count: int, folder: Path, mark: str) -> "SuperNode":
        """Return node `number` of `count`, with all that it owns in `folder`; its key is made if there is none."""
        data, state = folder / "data", folder / "state"
        for needed in (folder / "home", data, state):
            needed.mkdir(parents=True, exist_ok=True)
        if not (folder / "key" / "node.pub").exists():
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
        _clear(self.program)
        settings = self.folder / "node.toml"  # on the command line, quotation marks in a path would be lost
        settings.write_text(tomli_w.dumps(self.config))
        [port] = free_ports(1)
        command = [*self.command, "--superlink", self.superlink, "--root-certificates", str(authority)]
        command += ["--auth-supernode-private-key", str(self.folder / "key" / "node.key")]
        command += ["--node-config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
        self._log_offset = self.program.log.stat().st_size if self.program.log.exists() else 0
        self.program.start(command, self.folder, environment(self.folder / "home", self.launchers) | self.env)

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
                lines = [line.strip() for line in ANSI.sub("", log_text).split("\n") if line.strip()]
                errors = [line for line in lines if line.startswith("[code:") or "Error" in line]
                reason = (errors or lines or ["it wrote no log"])[-1]
                raise LaunchError(f"{self.program.name} did not connect: {reason}")
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


def _clear(program: Program) -> None:
    """Raise `LaunchError` if `program` runs; end what one that was killed left."""
    if program.running():
        raise LaunchError(f"the {program.name} runs already")
    end([program], grace_s=0)
