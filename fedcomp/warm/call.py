"""A launcher's call, and how a process that was forked becomes the one that the launcher asks for."""

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import SupportsIndex, cast

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LauncherCall:
    """What a launcher was called with."""

    command: Sequence[str]
    folder: str
    umask: int
    environment: dict[str, str]
    files: Sequence[int]
    """The standard input, output and error, and the pipe on which the launcher says that the command begins."""

    @classmethod
    def receive(cls, connection: socket.socket) -> "LauncherCall":
        """Return the call that a launcher sent; raise `OSError`, `ValueError`, `TypeError` or `KeyError` for anything else."""
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        text, files, _, _ = socket.recv_fds(connection, MAX_BYTES, 4)
        try:
            sent = json.loads(text)
            environment = {str(name): str(value) for name, value in sent["environment"].items()}
            call = cls(
                [str(word) for word in sent["command"]], str(sent["folder"]), int(sent["umask"]), environment, files
            )
            if user != os.geteuid() or len(files) != 4 or not call.command:
                raise ValueError("no call of this user's launcher")
        except BaseException:
            close_all(files)
            raise
        return call

    def take_over(self) -> None:
        """Give the arguments, environment, folder and open files of the caller to this process."""
        for number, file in enumerate(self.files[:3]):
            os.dup2(file, number)
        close_all(self.files)
        os.umask(self.umask)
        os.chdir(self.folder)
        sys.argv = [str(Path(sys.executable).with_name(self.command[0])), *self.command[1:]]
        os.environ.clear()
        show(self.command, self.environment)
        os.environ.update(self.environment)
        stdout = cast(TextIOWrapper, sys.stdout)
        stdout.reconfigure(line_buffering=stdout.isatty() and not stdout.write_through)  # that of the server is a file


class SearchPath(list[str]):
    """The search path of a process: where the app's folder is put first, libraries of a name that the app has are forgotten.

    So the app's own modules are found, as in a process of Flower's own, which has not imported what is `preloaded`.
    """

    def __init__(self, places: Sequence[str], preloaded: Mapping[str, ModuleType]) -> None:
        super().__init__(places)
        self.preloaded = dict(preloaded)

    def insert(self, index: SupportsIndex, place: str) -> None:
        """Insert a folder."""
        super().insert(index, place)
        own = {file.stem for file in Path(place).glob("*.py")}
        own.update(file.parent.name for file in Path(place).glob("*/__init__.py"))
        for name in [name for name in self.preloaded if name.partition(".")[0] in own]:
            if sys.modules.get(name) is self.preloaded.pop(name):
                del sys.modules[name]


def close_all(files: Sequence[int]) -> None:
    """Close files that a launcher has sent."""
    for file in files:
        os.close(file)


def show(command: Sequence[str], environment: dict[str, str]) -> None:
    """Have other programs, such as ps, see these arguments and this environment: what does not fit is left out.

    The kernel reads them from the memory of the process, where this process reads them no more (proc(5), stat, 48 to 51).
    """
    numbers = [int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    variables = [f"{name}={value}" for name, value in environment.items()]
    with suppress(OSError), Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        for begin, end, texts in zip(numbers[::2], numbers[1::2], (command, variables), strict=True):
            block = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - begin]
            memory.seek(begin)
            memory.write(block[: block.rfind(b"\0") + 1].ljust(end - begin, b"\0"))


def seed() -> None:
    """Draw new seeds: a process must not continue the random numbers of the server.  `random` does so itself."""
    for name in ("numpy.random", "torch"):
        if module := sys.modules.get(name):
            (module.default_generator if name == "torch" else module).seed()
