"""The disk space of a node's Python environment and the memory of its processes during training.

    python -m benchmarks.footprint [--python PYTHON] [--cold] [--dataset digits] [--data-dir DIR] [--model mlp] [--samples 400]

PYTHON is the interpreter of the node's environment (default: this one).  A SuperLink and one SuperNode run on loopback, as
`deploy.federation` starts them, the node under ``fedcomp warm`` unless --cold is given.  It trains for a few rounds on its own
samples or, with --shared, on its partition of the whole dataset, for which it needs the dataset and the partitioning
libraries.  Memory is read from /proc ten times a second, so this works on Linux only.  The resident size of a process includes
all memory that it shares with others; the sum counts shared memory once.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.federation import Federation
from deploy.program import Program, signals_as_exits
from deploy.run_config import ROOT, LaunchError
from fedcomp.commands import new_parser
from fedcomp.data import load, partition_train, read_card, write_own

PARTS = ("fedcomp.warm.server", "flower-supernode", "flower-superexec", "flwr-clientapp")
SERVER_PARTS = ("flower-superlink", "flwr-serverapp")
POLL_S = 0.1
TIMEOUT_S = 600.0
MIB = 1 << 20


@dataclass(slots=True)
class Peaks:
    """The peak resident size of each part of a node, and of all parts together, in bytes."""

    parts: dict[str, int] = field(default_factory=dict[str, int])
    together: int = 0

    def look(self, program: Program) -> None:
        """Update the peaks with the current processes of `program`."""
        together = 0
        for process in program.processes():
            try:
                command = " ".join(process.cmdline())
                status = Path(f"/proc/{process.pid}/status").read_text()
                together += process.memory_full_info().pss
            except (psutil.Error, OSError):  # it ended while we looked
                continue
            part = next((part for part in PARTS + SERVER_PARTS if part in command), "others")
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)  # absent if the process has ended
            self.parts[part] = max(self.parts.get(part, 0), int(peak[1]) * 1024 if peak else 0)
        self.together = max(self.together, together)


def installed(python: Path) -> tuple[int, int]:
    """Return the bytes on disk of the environment of `python`, and the number of packages in it.

    That is where its libraries lie and its scripts: in a virtual environment, without the interpreter itself.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    said = subprocess.run(
        [str(python), "-c", ASK], capture_output=True, text=True, check=True, env=env
    ).stdout.splitlines()
    return sum(on_disk(Path(line)) for line in dict.fromkeys(said[1:])), int(said[0])


ASK = """
import sysconfig
from importlib.metadata import distributions
print(len(list(distributions())))
for name in ("purelib", "platlib", "scripts"):
    print(sysconfig.get_path(name))
"""


def train(options: argparse.Namespace, folder: Path) -> Peaks:
    """Return the peak memory of the processes of a node with the interpreter `options.python` while it trained.

    Raises `LaunchError` where the run fails, with its reason.
    """
    card = read_card(options.dataset, ROOT / "datasets")
    dataset = load(card, options.data_dir or None)
    shares = max(1, len(dataset.train) // options.samples)
    rows = partition_train(dataset, "iid()", shares, 0)[0]
    write_own(folder / "samples", card, dataset.train.x[rows], dataset.train.y[rows])
    peaks = Peaks()
    with Federation(folder / "federation", nodes=1, warm=False) as federation:
        [node] = federation.nodes
        node.command = [*(() if options.cold else ("fedcomp", "warm")), *node.command]
        node.config = {"state-dir": str(folder / "state")}
        if options.shared:
            node.config |= {"partition-id": 0, "num-partitions": shares}
        else:
            node.config["data-dir"] = str(folder / "samples")
        node.env = {"PATH": f"{options.python.parent}{os.pathsep}{os.environ['PATH']}"}
        federation.start()
        settings = {
            "dataset": options.dataset,
            "data-dir": str(Path(options.data_dir).expanduser().absolute()) if options.data_dir else "",
            "model": options.model,
            "partition": "iid()" if options.shared else "own()",
            "num-rounds": options.rounds,
            "min-nodes": 1,
            "fraction-train": 1.0,
            "runs-dir": str(folder / "runs"),
        }
        run = federation.run(ROOT, settings)
        begin = time.monotonic()
        while run.follower.running() and time.monotonic() < begin + TIMEOUT_S:
            peaks.look(node.program)
            time.sleep(POLL_S)
        if run.wait(0) != "finished:completed":
            raise LaunchError(f"the run is {run.status()}: {run.reason() or run.follower.last_line()}")
    return peaks


def on_disk(folder: Path) -> int:
    """Return the bytes of the blocks of all files below `folder`, without following links, as du counts them."""
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sum(512 * path.lstat().st_blocks for path in files)


def _lines(options: argparse.Namespace) -> Iterator[str]:
    size, packages = installed(options.python)
    yield f"environment   {size / MIB:7,.0f} MiB, {packages} packages ({options.python})"
    with tempfile.TemporaryDirectory(prefix="fedcomp-") as folder:
        peaks = train(options, Path(folder))
    whose = "shared" if options.shared else "own"
    yield f"peak memory of a node that trains {options.model} on {options.samples} {whose} samples of {options.dataset}:"
    for part, resident in sorted(peaks.parts.items(), key=lambda pair: -pair[1]):
        yield f"  {part:<18}{resident / MIB:7,.0f} MiB"
    yield f"  {'together':<18}{peaks.together / MIB:7,.0f} MiB"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the sizes; return 0, or 2 after one sentence if they cannot be measured."""
    parser = new_parser("python -m benchmarks.footprint", __doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of the node's environment")
    parser.add_argument("--cold", action="store_true", help="start each ClientApp anew, without `fedcomp warm`")
    parser.add_argument("--dataset", default="digits", help="a card in datasets/")
    parser.add_argument("--data-dir", default="", help="where the dataset's own files lie")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--samples", type=int, default=400, help="of the node, about")
    parser.add_argument("--shared", action="store_true", help="train on a share of the whole dataset")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    try:
        with signals_as_exits():
            for line in _lines(options):
                print(line, flush=True)
    except (LaunchError, ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"footprint: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
