"""Runs a Flower program whose ClientApps start in a fraction of a second: `fedcomp.warm` tells how.

fedcomp warm flower-supernode --superlink superlink.example:8000 ...
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fedcomp.commands import new_parser
from fedcomp.warm import install, unsupported


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Become the program; exit with 2, after one sentence, if there is none of that name."""
    parser = new_parser("fedcomp warm", __doc__)
    parser.add_argument("program", help="a program of Flower, such as flower-supernode")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="of the program")
    options = parser.parse_args(arguments)
    program: str = options.program
    if (path := shutil.which(program)) is None:
        parser.error(f"{program} is not on the PATH")
    if reason := unsupported() or _warm_up():
        print(f"fedcomp warm: {reason}; plain Flower runs", file=sys.stderr, flush=True)
    os.execv(path, [program, *options.arguments])  # noqa: S606


def _warm_up() -> str:
    """Start the fork server of this process, and put its launchers on the PATH; return why this is impossible, if it is."""
    before = os.environ.get("PATH", os.defpath)
    try:
        folder = Path(tempfile.mkdtemp(prefix="fedcomp-warm-"))
        os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
        install(folder, os.environ, owner=os.getpid())
    except OSError as error:
        os.environ["PATH"] = before
        return str(error)
    return ""
