"""A real federation on this machine: a SuperLink and SuperNodes as processes, with TLS and keys, on loopback only.

    with Federation(folder, nodes=5) as federation:
        federation.start()
        run = federation.run(ROOT, {"num-rounds": 12, "min-nodes": 5})
        run.wait(timeout_s=300)

The SuperLink knows a node by its public key: while the SuperLink runs, a SuperNode that restarts with the same key has the
same node id and needs no registration.  A SuperNode that ends by SIGTERM signs off, and may return at once.  One that was
killed counts as online until it has missed two heartbeats, up to 60 seconds; until then the SuperLink refuses its return,
and `SuperNode.wait` starts it again.

A run whose ServerApp was killed counts as running for up to a minute, and then as failed.  `Run.stop` ends it at once;
another run, such as one that resumes from its checkpoint, can start without waiting.
"""

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from deploy.control import Control, Run
from deploy.environment import environment
from deploy.flower_programs import GRACE_S, STARTUP_TIMEOUT_S, SuperLink, SuperNode
from deploy.keys import make_server
from deploy.program import MARK, Program, end
from deploy.run_config import LaunchError
from fedcomp.warm import PRELOADED, install, unsupported

LAUNCHERS = "launchers"
"""The folder, in that of a federation, of the launchers of Flower's programs."""
FORKED = ("flower-superlink", "flower-supernode", "flower-superexec", "flwr", "flwr-serverapp", "flwr-clientapp")
OF_ONE_PROGRAM = ("FLWR_HOME", "RAY_TMPDIR", MARK)
"""Variables that differ between the programs, and that no library reads while it is imported."""
OF_THE_APP = ("sklearn.datasets", "matplotlib.pyplot", "rich.table")
"""Libraries of fedcomp's own app, imported once for the server and all nodes."""


class Federation(AbstractContextManager["Federation"]):
    """A SuperLink and `nodes` SuperNodes in `folder`; keys, data and state that are there already are used again.

    `env` is added to the environment of all processes.  Nothing runs before `start`.  As a context manager, it ends
    everything that it started.  If `warm`, all processes of Flower are forked from one, where that is supported.
    """

    def __init__(self, folder: Path, nodes: int, *, env: Mapping[str, str] | None = None, warm: bool = True) -> None:
        """Make the folder and all keys; raise `LaunchError` for less than one node."""
        if nodes < 1:
            raise LaunchError(f"{nodes} nodes; at least 1 is needed")
        self.folder = folder.absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = dict(env or {})
        self.mark = f"{secrets.token_hex(16)}/"
        self.launchers = self.folder / LAUNCHERS if warm and not unsupported() else None
        self.control = Control(self.folder / "flower", self.mark, self.launchers)
        keys = self.folder / "keys"
        self.authority = keys / "ca.pem"
        """The certificate that verifies the SuperLink's."""
        if not (keys / "server.pem").exists():
            make_server(keys)
        flags = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        flags += ["--ssl-ca-certfile", str(self.authority), "--ssl-certfile", str(keys / "server.pem")]
        flags += ["--ssl-keyfile", str(keys / "server.key")]
        log = self.folder / "superlink" / "superlink.log"
        self.superlink = SuperLink(Program("SuperLink", f"{self.mark}superlink/", log), flags, self.authority)
        self.nodes = [
            SuperNode.make(number, nodes, self.folder / f"node-{number}", f"{self.mark}node-{number}/")
            for number in range(nodes)
        ]
        for node in self.nodes:
            node.launchers = self.launchers
        self._fork_server = 0

    @property
    def port(self) -> int:
        """The SuperLink's port, for nodes and for `flwr`."""
        return self.superlink.ports[0]

    @property
    def programs(self) -> list[Program]:
        """The SuperLink and the SuperNodes, with their logs and processes."""
        return [self.superlink.program, *(node.program for node in self.nodes)]

    def start(self) -> None:
        """Start everything, and return when all nodes are connected; raise `LaunchError` if one does not connect."""
        self.start_superlink()
        self.start_nodes()

    def start_superlink(self) -> None:
        """Start the SuperLink, wait until it answers, and register the keys of the nodes."""
        home = self.superlink.program.log.parent
        home.mkdir(parents=True, exist_ok=True)
        env = environment(home / "home", self.launchers) | self.env
        if self.launchers:
            self._fork_server = start_fork_server(self.launchers, env, self.mark)
        # relative paths of a run, such as `runs`, are in the federation's folder
        self.superlink.start(self.folder, env)
        self.control.connect(self.superlink.address, self.authority)
        node_ids = self.control.register([node.public_key for node in self.nodes])
        for node, node_id in zip(self.nodes, node_ids, strict=True):
            node.node_id = node_id

    def start_nodes(self) -> None:
        """Start all nodes, and return when all are connected."""
        for node in self.nodes:
            node.superlink = node.superlink or self.superlink.address
            node.env = self.env | node.env
            node.start(self.authority)
        for node in self.nodes:
            node.wait(self.authority, STARTUP_TIMEOUT_S)

    def run(self, app: Path, config: Mapping[str, object]) -> Run:
        """Return a run of the app in the folder `app` with the settings `config`, started in the background.

        Paths in `config` must be absolute.  Raises `LaunchError` if it cannot start.
        """
        return self.control.run(app, config, self.folder / "started")

    def close(self) -> None:
        """End everything that was started; nothing happens if nothing runs."""
        end_all(self.programs, self.mark)
        if self._fork_server:
            with suppress(ChildProcessError):
                os.waitpid(self._fork_server, 0)
            self._fork_server = 0

    def __exit__(self, *_: object) -> None:
        self.close()


def start_fork_server(folder: Path, env: Mapping[str, str], mark: str) -> int:
    """Start a fork server for all programs of a federation, write their launchers into `folder`, and return its process id."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return install(
        folder,
        {**env, MARK: f"{mark}warm/"},
        commands=FORKED,
        ignored=OF_ONE_PROGRAM,
        preloaded=(*PRELOADED, *OF_THE_APP),
    )


def end_all(programs: Sequence[Program], mark: str) -> None:
    """End the SuperLink and the SuperNodes in `programs`, and all other processes with `mark`, such as `flwr run`."""
    superlink, *nodes = programs
    with ExitStack() as steps:  # all of them, even if one raises; the last one first
        steps.callback(end, [Program("others", mark, Path())], grace_s=0)
        steps.callback(end, [superlink], GRACE_S)
        steps.callback(end, nodes, GRACE_S)  # they sign off at the SuperLink
