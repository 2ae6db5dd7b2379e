"""Warm nodes: Flower's processes are forked from one that has imported numpy, torch and Flower already.

Flower starts a process for each message, by the name ``flwr-clientapp``.  On a small device, importing torch and Flower anew
takes longer than the training.  ``fedcomp warm COMMAND`` puts a folder first on the PATH of the command.  In that folder,
``flwr-clientapp`` is `fedcomp.warm.launcher`, which hands the call to `fedcomp.warm.server`, a fork server.  It forks a process
for each call.  That process is as Flower's own would be: it has its own memory, and the caller's arguments, environment,
folder and open files.  Signals reach it, and its exit status is the launcher's.

* The app's own modules are imported in each process, from its bundle.  The libraries that they import are known after the
  first message; the server imports these too.  It starts anew for another bundle or another environment.
* The server has no threads and never initialises CUDA.  If a library does either while it is imported, plain Flower runs.
* The server listens on a socket in a folder that belongs to its user alone.  Messages are JSON.
* A process that ends, hangs or is killed leaves the server alone.  If the server is killed, the processes go on, and the next
  call starts another server.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from fedcomp.versions import unsupported_flower
from fedcomp.warm import launcher

PER_MESSAGE = ("flwr-clientapp",)
"""What Flower starts for each message on a node."""
PRELOADED = ("numpy", "torch", "fedcomp.flower")
"""What an app is expected to import."""


def unsupported() -> str:
    """Return why processes cannot be forked here; empty if they can."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    try:
        return unsupported_flower()
    except metadata.PackageNotFoundError as error:
        return f"{error.name} is not installed"


def install(
    folder: Path,
    environment: Mapping[str, str],
    *,
    commands: Sequence[str] = PER_MESSAGE,
    owner: int = 0,
    ignored: Sequence[str] = (),
    preloaded: Sequence[str] = PRELOADED,
) -> int:
    """Write launchers of `commands` into the empty `folder`, for the front of a PATH, and start the fork server.

    Returns the id of its process, which is a child of this one; raises `OSError` where the folder cannot hold programs.

    The server imports the modules in `preloaded`, those that are installed, and what the commands need.  It ends with the
    process `owner`, and then deletes the folder; without an owner, it ends by SIGTERM alone.
    It starts anew for an environment other than `environment`, but for the variables in `ignored`: no library may read them
    while it is imported.
    """
    folder.chmod(0o700)
    settings = {"commands": commands, "owner": owner, "ignored": ignored, "preloaded": preloaded}
    (folder / launcher.SETTINGS).write_text(json.dumps(settings))
    # -I ignores the environment, which may say where compiled modules lie
    compiled = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    for name in commands:
        call = shlex.join([sys.executable, "-IS", *compiled, launcher.__file__, str(folder), name])
        (folder / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (folder / name).chmod(0o700)
        if not os.access(folder / name, os.X_OK):
            raise PermissionError(
                f"{folder} is on a file system that runs no programs (noexec); set TMPDIR to another folder"
            )
    return launcher.start(str(folder), environment)
