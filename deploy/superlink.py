"""A SuperLink on loopback: started on free ports, and waited for until it answers."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.environment import free_ports
from deploy.program import Program, end, wait_until
from deploy.run_config import LaunchError

STARTUP_TIMEOUT_S = 90.0
GRACE_S = 5.0
MAX_ATTEMPTS = 3
"""A port that was free may be taken by another program before the SuperLink listens."""
PORT_TAKEN = "address already in use"


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
        if self.program.running():
            raise LaunchError("the SuperLink runs already")
        end([self.program], grace_s=0)  # what a killed one left
        for attempt in range(1, MAX_ATTEMPTS + 1):
            port = self.address.rpartition(":")[2]
            command = ["flower-superlink", "--host", "127.0.0.1", "--port", port, *self.flags]
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
        except (urllib.error.URLError, OSError):
            return False
