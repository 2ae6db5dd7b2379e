"""Stands for a Flower command: has the fork server run it, or runs Flower's own.

    python -IS launcher.py FOLDER COMMAND [ARGUMENT ...]

It passes signals on, and ends as the process ends that was forked.  It imports the standard library alone, and of that little:
so it starts in some hundredths of a second.
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

SETTINGS = "settings.json"
SOCKET = "server.socket"
LOG = "server.log"
UNFIT = "unfit"
"""The file with the reason why this server's processes cannot be forked."""
ROOM = "FEDCOMP_WARM_ROOM"
"""A variable that makes the server's environment large enough for those of its processes."""
INSTALLS = "--allow-runtime-dependency-installation"
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
REPLY_S = 60.0
"""A server that imports its libraries replies within seconds; one that hangs does not."""
ATTEMPTS = 3
"""The server hangs up to start anew, for another environment."""


def main() -> NoReturn:
    """Run the command, and exit with its status or by its signal."""
    folder, name, *arguments = sys.argv[1:]
    try:
        if INSTALLS in arguments:
            raise ValueError("the app's libraries are installed first")
        with suppress(FileNotFoundError), open(os.path.join(folder, UNFIT), encoding="utf-8") as reason:
            raise ValueError(reason.read())
        for _ in range(ATTEMPTS):
            if (status := _forked(folder, [name, *arguments])) is not None:
                _leave(status)
        raise ValueError("the fork server runs processes of another environment")
    except (OSError, ValueError) as error:
        print(f"fedcomp warm: {error}; plain Flower runs", file=sys.stderr, flush=True)
    _plain(folder, name, arguments)


def start(folder: str, environment: Mapping[str, str]) -> int:
    """Start a fork server for `folder`, and return its process id, or 0 if another one listens; it need not be ready."""
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError, ConnectionRefusedError), _connect(folder):
            return 0
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with listener, _Short(folder) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            listener.listen(socket.SOMAXCONN)
            listener.set_inheritable(True)
            command, environment = server_call(folder, listener.fileno(), environment)
            log = os.path.join(folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
            files += [(os.POSIX_SPAWN_OPEN, number, *log) for number in (1, 2)]
            # in a session of its own: Ctrl-C in the terminal reaches the processes by their launchers
            return os.posix_spawn(sys.executable, command, environment, file_actions=files, setsid=True)


def server_call(folder: str, listener: int, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment of a fork server, with room for those of its processes."""
    command = [sys.executable, "-P", "-m", "fedcomp.warm.server", folder, str(listener), " " * 1024]
    return command, {**environment, ROOM: " " * 4096}


class _Short:
    """The path of the socket in `folder` by a short name: that of a socket has at most 107 bytes."""

    def __init__(self, folder: str) -> None:
        self.folder = os.open(folder, os.O_PATH)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self.folder}/{SOCKET}"

    def __exit__(self, *_: object) -> None:
        os.close(self.folder)


def _connect(folder: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _Short(folder) as path:
            server.connect(path)
    except OSError:
        server.close()
        raise
    return server


def _forked(folder: str, command: Sequence[str]) -> int | None:
    """Return the exit status, negative for a signal, of the process that the server forks; `None` if it hangs up."""
    try:
        server = _connect(folder)
    except (FileNotFoundError, ConnectionRefusedError):
        start(folder, os.environ)
        server = _connect(folder)
    umask = os.umask(0o077)
    os.umask(umask)
    call = {"command": command, "folder": os.getcwd(), "umask": umask, "environment": dict(os.environ)}
    begin, begins = os.pipe()
    server.settimeout(REPLY_S)
    reply, process = b"", list[int]()
    with suppress(ConnectionError):  # the server ends
        socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2, begin])
        reply, process, *_ = socket.recv_fds(server, 1, 1)
    os.close(begin)
    server.settimeout(None)
    if not reply:
        os.close(begins)
        return None
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(process[0], number))
    os.write(begins, b"!")  # from here on the command runs; whatever happens to the server, it must not run again
    with suppress(OSError):
        if status := server.recv(16):
            return int(status)
    select.select(process, [], [])  # the server was killed; the process goes on
    return 1


def _pass_on(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)


def _leave(status: int) -> NoReturn:
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _plain(folder: str, name: str, arguments: Sequence[str]) -> NoReturn:
    for place in os.get_exec_path():
        if place != folder and os.access(path := os.path.join(place, name), os.X_OK):
            os.execv(path, [name, *arguments])  # noqa: S606
    sys.exit(f"fedcomp warm: {name} is not on the PATH")


if __name__ == "__main__":
    main()
