"""The command `fedcomp`, which is also ``python -m fedcomp``: it finds the subcommand and runs it."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from fedcomp import __version__

Commands = dict[str, tuple[str, str, str]]
"""Of each subcommand its module, what it does, and an example."""

ANYWHERE: Commands = {
    "demo": ("fedcomp.commands.demo", "train on simulated nodes, plain and compressed, and compare", ""),
    "doctor": (
        "fedcomp.commands.doctor",
        "check this machine, and whether a SuperLink answers",
        "superlink.example:8000",
    ),
    "methods": ("fedcomp.commands.methods", "list the compression methods", ""),
    "training": ("fedcomp.commands.training", "list the training plug-ins", ""),
    "show": ("fedcomp.commands.show", "describe a file of frames", "update.frame"),
    "warm": ("fedcomp.commands.warm", "run a SuperNode that starts ClientApps quickly", "flower-supernode --insecure"),
    "export": ("fedcomp.commands.export", "write a model as safetensors", "model.npz model.safetensors"),
    "data": ("fedcomp.data.__main__", "write and check the samples of a node", "check card.toml samples"),
    "gossip": ("fedcomp.gossip.__main__", "run one node of a graph, without a server", "node.toml"),
}
IN_FOLDER: Commands = {
    "partition": ("experiments.partition", "show how partitions spread a dataset", '--partition "dirichlet(0.1)"'),
    "study": ("experiments.__main__", "run a grid of methods, partitions and seeds", "experiments/studies/quick.toml"),
    "report": ("experiments.study_report", "draw the report of a study", "runs/studies/quick/results.csv"),
    "compare": ("experiments.compare", "compare run folders side by side", "runs/digits-001 runs/digits-002"),
    "monitor": ("deploy.monitor.__main__", "watch a run in the terminal", "runs/digits-001"),
    "keys": ("deploy.keys", "make the keys and certificates of a federation", "node keys"),
}
COMMANDS = ANYWHERE | IN_FOLDER
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its status: 0, 1 or 2 after one sentence about what is wrong, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="fedcomp",
        usage="fedcomp COMMAND ...\n       fedcomp COMMAND --help",
        description="Federated learning that is cheap to send.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help="one of those below, or a file of frames to show")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="of the command")
    parser.add_argument("--version", action="version", version=f"fedcomp {__version__}")
    options = parser.parse_args(arguments)
    name: str = options.command
    rest: list[str] = options.arguments
    if name not in COMMANDS:
        if name != "-" and not Path(name).exists() and (near := get_close_matches(name, COMMANDS, 1)):
            parser.error(f"{name!r} is neither a command nor a file; did you mean {near[0]!r}?")
        name, rest = "show", [name, *rest]
    if isinstance(sys.stdout, io.TextIOWrapper):  # None if it is closed
        sys.stdout.reconfigure(errors="backslashreplace")  # as the standard error: names in a terminal of ASCII
    try:
        status: int = import_module(COMMANDS[name][0]).main(rest)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe: exit without a traceback
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        where = f"{error.filename}: " if error.filename else ""
        print(f"fedcomp: {name}: {where}{error.strerror}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"fedcomp: {name}: {_missing(name, error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _discard_output() -> None:
    """Drop what the standard output cannot take: Python would write it at the exit, and fail again."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _epilog() -> str:
    lines: list[str] = []
    for title, commands in (("anywhere:", ANYWHERE), ("in fedcomp's folder, after `make install`:", IN_FOLDER)):
        lines += ["", title]
        for name, (_, summary, example) in commands.items():
            lines += [f"  {name:<11}{summary}", f"  {'':<11}  fedcomp {name} {example}".rstrip()]
    return "\n".join(lines[1:])


def _missing(name: str, error: ImportError) -> str:
    """Return the sentence about a module of the subcommand `name` that cannot be imported."""
    room = COMMANDS[name][0].split(".")[0]
    if error.name and error.name.split(".")[0] == room != "fedcomp":
        return "it belongs to fedcomp's app, and is not in the wheel; `make install` in fedcomp's folder installs it"
    if "pip install" in str(error) or not error.name:
        return str(error)
    if room == "fedcomp":
        return f"it needs {error.name}, which is not installed; pip install {error.name} installs it"
    return f"it needs {error.name}, which is not installed; `make install` in fedcomp's folder installs it"


if __name__ == "__main__":
    sys.exit(main())
