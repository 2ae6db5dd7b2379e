"""What the tests do to a running federation: stop and restart a node, find ServerApps, look at processes."""

from contextlib import suppress

import psutil

from deploy.federation import Federation
from deploy.flower_programs import GRACE_S
from deploy.program import end, mark_of

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


def carriers(mark: str) -> list[str]:
    """Return the names of all processes, zombies included, whose mark starts with `mark`."""
    return [process.name() for process in psutil.process_iter() if mark_of(process).startswith(mark)]
