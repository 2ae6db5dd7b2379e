"""The fork server: imports once what Flower's processes need, and forks one for each call of a launcher.

    python -P -m fedcomp.warm.server FOLDER SOCKET ROOM

SOCKET is the number of the listening socket, which the server inherits, and ROOM nothing but space.  It ends with its owner.
"""

import atexit
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from fedcomp.warm.call import LauncherCall, SearchPath, close_all, seed
from fedcomp.warm.launcher import ROOM, SETTINGS, UNFIT, server_call

OF_SHELLS = frozenset({"LC_CTYPE", "OLDPWD", "PWD", "SHLVL", "_"})
"""Variables that shells and Python itself set: they may differ from the server's."""
LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
SAFE_THREADS = frozenset({"jemalloc_bg_thd"})
"""The allocator of pyarrow prepares its thread for a fork itself."""
TIMEOUT_S = 5.0
LEARNED = "learned.json"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was forked, and its launcher."""

    number: int
    handle: int
    """A file that can be read once the process has ended."""
    launcher: socket.socket

    def close(self) -> None:
        """Close its files."""
        os.close(self.handle)
        self.launcher.close()


class ForkServer:
    """Forks a process for each call that arrives at `listener`."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        """Import what the commands need, and what the last server learned; raise `UnfitError` if forking is not safe then."""
        self.folder, self.listener = folder, listener
        settings = json.loads((folder / SETTINGS).read_text())
        learned: dict[str, Any] = json.loads((folder / LEARNED).read_text()) if (folder / LEARNED).exists() else {}
        self.bundle: str = learned.get("bundle", "")
        self.environment = dict(os.environ)
        self.ignored = OF_SHELLS.union(settings["ignored"])
        scripts = metadata.entry_points(group="console_scripts")
        try:
            self.commands: dict[str, Callable[[], object]] = {
                name: scripts[name].load() for name in settings["commands"]
            }
        except Exception as error:
            raise UnfitError(f"{type(error).__name__} while the commands are imported: {error}") from error
        self.flower = frozenset(sys.modules)
        self.path, self.modules = frozenset(sys.path), set(sys.modules)
        self.load([name for name in settings["preloaded"] if find_spec(name.partition(".")[0])])
        self.load(learned.get("modules", ()))
        if reason := unfit():
            raise UnfitError(reason)
        self.processes: set[Process] = set()
        self.selector = selectors.PollSelector()  # not epoll, which a process would share with the server
        self.selector.register(listener, selectors.EVENT_READ)
        self.owner = os.pidfd_open(settings["owner"]) if settings["owner"] else None
        if self.owner is not None:
            self.selector.register(self.owner, selectors.EVENT_READ)

    def load(self, modules: Sequence[str]) -> None:
        """Import libraries; those that cannot be imported are left to the app."""
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)
        self.modules.update(sys.modules, modules)
        gc.collect()
        gc.freeze()  # collections in the processes do not touch, and so copy, what is here

    def serve(self) -> LauncherCall | None:
        """Fork processes until the owner has ended, and return `None`; return the call in each process that was forked."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    if call := self.accept():
                        return call
                elif key.fileobj == self.owner:
                    return None
                elif key.data in self.processes:
                    self.attend(key.data, key.fileobj is key.data.launcher)

    def accept(self) -> LauncherCall | None:
        """Fork a process for the launcher that calls; return the call in it."""
        launcher, _ = self.listener.accept()
        launcher.settimeout(TIMEOUT_S)
        try:
            call = LauncherCall.receive(launcher)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            launcher.close()
            return None
        known = call.command[0] in self.commands
        if not known or self.other(call.environment):
            launcher.close()
            close_all(call.files)
            if known and not self.processes:
                self.restart(call.environment)
            return None
        if (process_id := os.fork()) == 0:
            launcher.close()
            self.close()
            if not os.read(call.files[3], 1):  # the launcher has ended
                os._exit(0)
            return call
        close_all(call.files)
        process = Process(process_id, os.pidfd_open(process_id), launcher)
        self.processes.add(process)
        self.selector.register(process.handle, selectors.EVENT_READ, process)
        self.selector.register(launcher, selectors.EVENT_READ, process)
        with suppress(OSError):  # a launcher that has ended is attended to next
            socket.send_fds(launcher, [b"!"], [process.handle])
        return None

    def attend(self, process: Process, launcher_ended: bool) -> None:
        """Kill a process whose launcher was killed; report the exit status of one that has ended."""
        if launcher_ended:
            self.selector.unregister(process.launcher)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.handle, signal.SIGKILL)
            return
        _, status = os.waitpid(process.number, 0)
        with suppress(OSError):
            process.launcher.send(str(os.waitstatus_to_exitcode(status)).encode())
        for file in (process.handle, process.launcher):
            with suppress(KeyError):
                self.selector.unregister(file)
        process.close()
        self.processes.remove(process)
        report = self.folder / f"{process.number}.json"
        with suppress(OSError, ValueError, TypeError):  # the app may have written it
            text = report.read_text()
            report.unlink()
            self.learn(**json.loads(text))

    def learn(self, bundle: str, modules: Sequence[str]) -> None:
        """Import the libraries that an app has imported; start anew for another app, unless processes run."""
        if self.bundle in ("", bundle):
            self.bundle = bundle
            self.load(modules)
            if reason := unfit():
                (self.folder / UNFIT).write_text(f"{reason} by a library that the app imports")
        elif not self.processes:
            (self.folder / LEARNED).write_text(json.dumps({"bundle": bundle, "modules": modules}))
            self.restart(self.environment)

    def report(self) -> None:
        """Write down, in a process that ends, from which bundle its app came, and which libraries it has imported."""
        bundle = next((Path(place).name for place in sys.path if place not in self.path), "")
        modules = [
            name
            for name, module in list(sys.modules.items())
            if name not in self.modules and str(getattr(module, "__file__", "")).startswith(LIBRARIES)
        ]
        if modules or bundle not in ("", self.bundle):
            (self.folder / f"{os.getpid()}.json").write_text(json.dumps({"bundle": bundle, "modules": modules}))

    def other(self, environment: dict[str, str]) -> bool:
        """Return whether a variable differs from the server's that a library may read while it is imported."""
        names = (environment.keys() | self.environment.keys()) - self.ignored
        return any(environment.get(name) != self.environment.get(name) for name in names)

    def restart(self, environment: dict[str, str]) -> NoReturn:
        """Become a new server, with nothing imported, that listens on the same socket."""
        self.listener.set_inheritable(True)
        os.execve(sys.executable, *server_call(str(self.folder), self.listener.fileno(), environment))  # noqa: S606

    def close(self) -> None:
        """Close the server's files, in a process that was forked."""
        for process in self.processes:
            process.close()
        self.selector.close()
        self.listener.close()
        if self.owner is not None:
            os.close(self.owner)


class UnfitError(RuntimeError):
    """Processes cannot be forked safely."""


def unfit() -> str:
    """Return why this process must not fork; empty if it may.

    Some libraries of linear algebra start threads, and end them before a fork: one is tried first.
    """
    if (process_id := os.fork()) == 0:
        os._exit(0)
    os.waitpid(process_id, 0)
    threads = [path for path in Path("/proc/self/task").iterdir() if path.name != str(os.getpid())]
    names = {(thread / "comm").read_text().strip() for thread in threads}
    if started := names - SAFE_THREADS:
        return f"a thread ({', '.join(sorted(started))}) is started"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised"
    return ""


def main(arguments: Sequence[str]) -> None:
    """Serve; in a process that was forked, run the command and exit as it does."""
    os.environ.pop(ROOM, None)
    folder, listener = Path(arguments[0]), socket.socket(fileno=int(arguments[1]))
    listener.set_inheritable(False)
    for file in list(Path("/proc/self/fd").iterdir()):
        number = int(file.name)
        if number > 2 and number != listener.fileno():
            with suppress(OSError):
                os.close(number)  # of the process that started the server
    try:
        server = ForkServer(folder, listener)
    except UnfitError as error:
        (folder / UNFIT).write_text(str(error))
        return
    except ProcessLookupError:  # the owner has ended
        server = None
    call = server.serve() if server else None
    if server is None or call is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    call.take_over()
    seed()
    sys.path = SearchPath(sys.path, {name: sys.modules[name] for name in sys.modules.keys() - server.flower})
    atexit.register(server.report)  # the first that is registered runs last
    command: Any = server.commands[call.command[0]]
    sys.exit(command())


if __name__ == "__main__":
    main(sys.argv[1:])
