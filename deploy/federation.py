"""A real federation on this machine: a SuperLink and SuperNodes as processes, with TLS and keys, on loopback only.

    with Federation(folder, nodes=5) as federation:
        federation.start()
        run = federation.run(ROOT, {"num-rounds": 12, "min-nodes": 5})
        federation.nodes[2].program.signal(signal.SIGKILL)      # the SuperNode and all of its processes
        federation.start_node(2)                                # returns when the SuperLink has let it in
        run.wait(timeout_s=300)

What the SuperLink remembers of a node.  A node is its public key: as long as the SuperLink lives (or its database, if
that is a file), a SuperNode that comes back with the same key has the same node id, and needs no registration.
One that ends by SIGTERM says goodbye and may come back at once.  One that was killed counts as online until it has
missed two heartbeats, that is up to 60 seconds; until then its return is refused ("Failed to activate SuperNode"), and the
SuperNode ends; `start_node` tries again until it is let in.  One that was stopped (SIGSTOP) for longer is offline, and
online again with the next heartbeat after SIGCONT.

And of a run: one whose ServerApp was killed counts as running for up to a minute more, and fails then.  `Run.stop` ends
it at once; another run, as one that resumes from its checkpoint, may start without waiting.
"""

import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from deploy.control import Control, Run
from deploy.environment import environment, free_ports
from deploy.keys import make_server
from deploy.processes import Process
from deploy.program import Program, end, wait_until
from deploy.run_config import LaunchError
from deploy.supernode import PORT_TAKEN, SuperNode

STARTUP_TIMEOUT_S = 90.0
RETURN_TIMEOUT_S = 120.0
GRACE_S = 5.0
ATTEMPTS = 3


class Federation:
    """A SuperLink and `nodes` SuperNodes in `folder`, where keys, data and state of an earlier one are used again.

    `database` is a file, the SuperLink's memory while it is killed and started again; without, it forgets nodes and
    runs with its end.  `env` is added to the environment of all processes.  Nothing runs before `start`.  As a context
    manager it ends everything that it started.
    """

    def __init__(
        self, folder: Path, nodes: int, *, database: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        if nodes < 1:
            raise LaunchError(f"{nodes} nodes; at least 1 is needed")
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.database = database
        self.env = dict(env or {})
        self.mark = f"{secrets.token_hex(16)}/"
        self.port, self.health_port = free_ports(2)
        self.control = Control(self.folder / "flower", self.mark)
        self.superlink = Program("SuperLink", f"{self.mark}superlink/", self.folder / "superlink" / "superlink.log")
        if not (self.keys / "server.key").exists():
            make_server(self.keys)
        self.nodes = [
            SuperNode.make(number, nodes, self.folder / f"node-{number}", f"{self.mark}node-{number}/")
            for number in range(nodes)
        ]

    @property
    def keys(self) -> Path:
        """The folder of the authority and of the SuperLink's certificate."""
        return self.folder / "keys"

    @property
    def authority(self) -> Path:
        """The certificate by which the SuperLink's is verified."""
        return self.keys / "ca.pem"

    @property
    def address(self) -> str:
        """Where the SuperLink listens, for nodes and for `flwr`."""
        return f"127.0.0.1:{self.port}"

    @property
    def programs(self) -> list[Program]:
        """The SuperLink and the SuperNodes, with their logs and processes."""
        return [self.superlink, *(node.program for node in self.nodes)]

    def start(self) -> None:
        """Start everything, and return when all nodes are connected; raise `LaunchError` if they cannot be."""
        self.start_superlink()
        self.start_nodes()

    def start_superlink(self) -> None:
        """Start the SuperLink, wait until it answers, and register the nodes' keys if it does not know them."""
        if self.superlink.running():
            raise LaunchError("the SuperLink runs already")
        end([self.superlink], grace_s=0)  # what a killed one left
        home = self.superlink.log.parent
        home.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth"]
            command += ["--ssl-ca-certfile", str(self.authority), "--ssl-certfile", str(self.keys / "server.pem")]
            command += ["--ssl-keyfile", str(self.keys / "server.key"), "--disable-runtime-dependency-installation"]
            command += ["--health-server-address", f"127.0.0.1:{self.health_port}"]
            command += ["--database", str(self.database.absolute())] if self.database else []
            # relative paths of a run, as `runs`, are in the federation's folder
            self.superlink.start(command, self.folder, environment(home / "home") | self.env)
            wait_until(lambda: self.answers() or not self.superlink.running(), STARTUP_TIMEOUT_S)
            if self.superlink.running() and self.answers():
                break
            said = self.superlink.log.read_text(errors="replace").lower()
            end([self.superlink], GRACE_S)
            if PORT_TAKEN not in said or attempt == ATTEMPTS - 1:
                raise LaunchError(f"the SuperLink did not start: {self.superlink.tail()}")
            self.port, self.health_port = free_ports(2)
        self.control.connect(self.address, self.authority)
        strangers = [node for node in self.nodes if not node.node_id]
        for node, node_id in zip(
            strangers, self.control.register([node.public_key for node in strangers]), strict=True
        ):
            node.node_id = node_id

    def start_nodes(self) -> None:
        """Start all nodes, and return when all are connected."""
        for node in self.nodes:
            self._start(node)
        for node in self.nodes:
            node.wait(self.authority, STARTUP_TIMEOUT_S)

    def start_node(self, number: int, timeout_s: float = RETURN_TIMEOUT_S) -> None:
        """Start node `number`, and return when it is connected: up to a minute after it was killed."""
        self._start(self.nodes[number])
        self.nodes[number].wait(self.authority, timeout_s)

    def stop_node(self, number: int) -> None:
        """End node `number`: it says goodbye to the SuperLink, and may come back at once."""
        end([self.nodes[number].program], GRACE_S)

    def answers(self) -> bool:
        """Return whether the SuperLink answers, with a certificate that verifies."""
        try:
            trust = ssl.create_default_context(cafile=str(self.authority))
            with urllib.request.urlopen(f"https://{self.address}/health", timeout=1, context=trust) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def run(self, app: Path, config: Mapping[str, object]) -> Run:
        """Return a run of the app in the folder `app` with the settings `config`, started in the background.

        Paths in `config` must be absolute.  Raises `LaunchError` if it cannot start.
        """
        return self.control.run(app, config, self.folder / "started")

    def server_apps(self) -> set[Process]:
        """Return the processes of ServerApps at work, one for each run."""
        found = set()
        for process in self.superlink.processes():
            try:
                command = Path(f"/proc/{process[0]}/cmdline").read_bytes()
            except OSError:  # it ended while we looked
                continue
            if b"flwr-serverapp" in command:
                found.add(process)
        return found

    def close(self) -> None:
        """End everything that was started; nothing happens if nothing runs."""
        end_all(self.programs, self.mark)

    def __enter__(self) -> "Federation":
        """Return the federation itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything that was started, whatever happened."""
        self.close()

    def _start(self, node: SuperNode) -> None:
        node.superlink = node.superlink or self.address
        node.env = self.env | node.env
        node.start(self.authority)


def end_all(programs: Sequence[Program], mark: str) -> None:
    """End the SuperLink and the SuperNodes `programs`, and all else that carries `mark`, as what follows a run."""
    superlink, *nodes = programs
    with ExitStack() as each:  # the others too, where one cannot be ended
        each.callback(end, [Program("federation", mark, Path())], grace_s=0)
        each.callback(end, [superlink], GRACE_S)
        each.callback(end, nodes, GRACE_S)  # first, for they say goodbye
