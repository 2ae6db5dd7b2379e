"""What the tests do to a running federation: stop and restart a node, find ServerApps, look at processes; and its app."""

import shutil
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.federation import Federation
from deploy.flower_programs import GRACE_S
from deploy.program import Program, end, mark_of
from deploy.run_config import copy_app
from fedcomp.warm import launcher

RETURN_TIMEOUT_S = 120.0


def start_node(federation: Federation, number: int) -> None:
    """Start a node again, and return when it is connected: up to a minute after it was killed."""
    node = federation.nodes[number]
    node.start(federation.authority)
    node.wait(federation.authority, RETURN_TIMEOUT_S)


def stop_node(federation: Federation, number: int) -> None:
    """End a node by SIGTERM: it signs off at the SuperLink, and may return at once."""
    end([federation.nodes[number].program], GRACE_S)


def server_apps(federation: Federation) -> list[psutil.Process]:
    """Return the processes of ServerApps, one for each run."""
    found = []
    for process in federation.superlink.program.processes():
        with suppress(psutil.Error):  # it has ended
            if any("flwr-serverapp" in argument for argument in process.cmdline()):
                found.append(process)
    return found


def client_apps(program: Program) -> list[psutil.Process]:
    """Return the processes of a node's ClientApp, but not the launchers in front of them."""
    found = []
    for process in program.processes():
        with suppress(psutil.Error):  # it has ended
            words = process.cmdline()
            if any(Path(word).name == "flwr-clientapp" for word in words) and launcher.__file__ not in words:
                found.append(process)
    return found


def fork_servers(program: Program) -> list[psutil.Process]:
    """Return the fork server of a warm node; a process has its arguments, too, right after it was forked."""
    parents: dict[psutil.Process, int] = {}
    for process in program.processes():
        with suppress(psutil.Error):
            if "fedcomp.warm.server" in process.cmdline():
                parents[process] = process.ppid()
    numbers = {process.pid for process in parents}
    return [process for process, parent in parents.items() if parent not in numbers]


def carriers(mark: str) -> list[str]:
    """Return the names of all processes, zombies included, whose mark starts with `mark`."""
    return [process.name() for process in psutil.process_iter() if mark_of(process).startswith(mark)]


def app_of(package: Path, server: str, client: str, folder: Path) -> Path:
    """Return a copy of the project's app in `folder` with the ServerApp and the ClientApp of `package`, module:object."""
    copy_app(folder)
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "pyproject.toml").read_text()
    for before, after in (
        ('"server.app:app"', f'"{package.name}.{server}"'),
        ('"clients.app:app"', f'"{package.name}.{client}"'),
        ('"clients/**/*.py"', f'"clients/**/*.py", "{package.name}/*.py"'),
    ):
        assert before in text
        text = text.replace(before, after)
    (folder / "pyproject.toml").write_text(text)
    return folder


def watching_app(folder: Path) -> Path:
    """Return the app with those of `chaos`, which write what nodes learn and what arrives to CHAOS_BOOK."""
    return app_of(Path(__file__).parent / "chaos", "server:app", "client:app", folder)
