"""The peak memory of the processes of a run, in models: plain Flower and compressed, over real processes and sockets.

    python -m benchmarks.memory [--entries 50000000 --nodes 2 --rounds 3 --context --link COMPRESSOR ...]

A SuperLink and SuperNodes run on loopback, with TLS and keys, and Flower starts a process for each message.
The app trains nothing (`benchmarks/rounds_app`).  A run with a model of 60 entries gives what the libraries take; what a
process takes beyond that with the model of `--entries` is divided by the bytes of that model, four an entry.  Memory is read
from /proc ten times a second, so this works on Linux only.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.deployed_rounds import APP
from benchmarks.footprint import POLL_S, TIMEOUT_S, Peaks
from benchmarks.measurement import print_table
from deploy.federation import Federation
from deploy.program import signals_as_exits
from deploy.run_config import LaunchError
from fedcomp.commands import new_parser

PARTS = {
    "flwr-clientapp": "ClientApp",
    "flower-supernode": "SuperNode",
    "flwr-serverapp": "ServerApp",
    "flower-superlink": "SuperLink",
}
LINKS = ("stc(density=0.0025)", "eden(bits=1)")
MIN_ENTRIES = 1_000_000
"""Smaller models are lost in what the libraries take."""
LIBRARIES = 60
"""The entries of the model with which the libraries are measured: one in each tensor of the app."""


def peaks(federation: Federation, settings: Mapping[str, object]) -> dict[str, int]:
    """Return the peak resident bytes of the processes of each kind during a run."""
    found = Peaks()
    programs = federation.programs
    run = federation.run(APP, settings)
    begin = time.monotonic()
    while run.follower.running() and time.monotonic() < begin + TIMEOUT_S:
        for program in programs:
            found.look(program)
        time.sleep(POLL_S)
    if run.wait(0) != "finished:completed":
        reason = run.reason() or run.follower.last_line()
        run.stop()
        raise LaunchError(f"the run is {run.status()}: {reason}")
    return found.parts


def rows(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    for link in ("", *(options.link or LINKS)):
        taken: list[dict[str, int]] = []
        for entries in (LIBRARIES, options.entries):
            # processes keep the peaks of earlier runs, so each run has its own federation
            with (
                tempfile.TemporaryDirectory(prefix="fedcomp-memory-") as folder,
                Federation(Path(folder), options.nodes, warm=False) as federation,
            ):
                for node in federation.nodes if options.context else ():
                    del node.config["state-dir"]
                federation.start()
                config = {"rounds": options.rounds, "entries": entries, "link": link, "out": f"{folder}/seconds"}
                taken.append(peaks(federation, config))
        libraries, whole = taken
        models = {name: (whole[part] - libraries[part]) / (4 * options.entries) for part, name in PARTS.items()}
        yield {"app": link or "plain Flower"} | {name: f"{value:.1f}" for name, value in models.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 0, or 1 after one sentence if a run fails."""
    parser = new_parser("python -m benchmarks.memory", __doc__)
    parser.add_argument("--entries", type=int, default=50_000_000, help="of the model (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--context", action="store_true", help="the nodes keep their state in Flower's Context, not in files"
    )
    parser.add_argument(
        "--link", action="append", help=f"a compressor for both directions (default: {', '.join(LINKS)})"
    )
    options = parser.parse_args(arguments)
    if options.entries < MIN_ENTRIES or options.rounds < 2:
        parser.error(f"{options.entries} entries, {options.rounds} rounds; at least {MIN_ENTRIES} and 2 are needed")
    try:
        with signals_as_exits():
            found = list(rows(options))
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(f"{options.nodes} nodes, {options.entries:,} entries: peak memory in models", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
