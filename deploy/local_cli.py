"""`deploy/local`: a federation on this machine that stays up between commands.

deploy/local up 3                     # a SuperLink and three SuperNodes, in the background
deploy/local run -c "num-rounds=20"   # train over it
deploy/local status
deploy/local down                     # end exactly what `up` started
"""

import argparse
import fcntl
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.control import CONNECTION, Control
from deploy.federation import Federation
from deploy.keys import KeyFileError
from deploy.lines import Filter
from deploy.process_record import Record
from deploy.processes import ignore_endings, signals_as_exits
from deploy.run_config import ROOT, Config, LaunchError, app_of, run_config

FOLDER = ROOT / "runs" / "local"
NODES = 3
RUN: Config = {"num-rounds": 10, "fraction-train": 1.0, "checkpoint-every": 1}
"""Settings of a run that differ from the app's: a handful of nodes, and each does its part in each round."""


def up(args: argparse.Namespace) -> int:
    """Start a federation in the background; one that cannot be started leaves nothing."""
    folder: Path = args.folder
    if args.nodes < 1:
        raise LaunchError(f"{args.nodes} nodes; at least 1 is needed")
    with alone(folder):
        if (record := Record.read(folder)) and record.runs():
            raise LaunchError(f"a federation runs in {folder} already; end it with {command(folder, 'down')}")
        federation = Federation(folder, args.nodes)
        data = args.data_dir.expanduser().absolute() if args.data_dir else None
        if data:
            if not data.is_dir():
                raise LaunchError(
                    f"--data-dir is {args.data_dir}, which is no folder; the folder with the data is needed"
                )
            for node in federation.nodes:
                node.config["data-dir"] = str(data)
        try:
            Record.of(federation, data).write(folder)  # before anything runs: what is killed now is found by `down`
            print(f"starting a SuperLink and {args.nodes} SuperNodes", flush=True)
            federation.start()
            Record.of(federation, data).write(folder)
        except BaseException:
            ignore_endings()  # a second Ctrl-C must not leave a half-stopped federation
            federation.close()
            raise
    print(f"they run: SuperLink {federation.address}, health {federation.health_port} (gRPC), all in {folder}")
    print(f'train:    {command(folder, "run")} -c "num-rounds=20"')
    plain = [Path(sys.executable).parent / "flwr", "run", ROOT, CONNECTION]
    print(f"or:       FLWR_HOME={shlex.quote(str(federation.control.home))} {shlex.join(map(str, plain))}")
    print(f"look:     {command(folder, 'status')}")
    print(f"end:      {command(folder, 'down')}")
    return 0


def status(args: argparse.Namespace) -> int:
    """Say what runs; return 1 if it is not all that was started."""
    record = living(args.folder)
    superlink, *nodes = record.programs()
    print(f"{superlink.name:14} {state(superlink.running()):9} {record.address}, log {superlink.log}")
    known = control(args.folder, record).nodes() if superlink.running() else {}
    for node, node_id in zip(nodes, record.node_ids, strict=True):
        seen = f"{known.get(node_id, 'unknown')} at the SuperLink"
        print(f"{node.name:14} {state(node.running()):9} node id {node_id}, {seen}, log {node.log}")
    for run in control(args.folder, record).runs() if superlink.running() else ():
        print(f"run {run['run-id']}  {run['status']}  {float(run['elapsed']):.0f} s")
    return 0 if all(program.running() for program in record.programs()) else 1


def run(args: argparse.Namespace) -> int:
    """Train over the federation; the run is ended if this command is."""
    folder: Path = args.folder
    record = living(folder)
    defaults = {**app_of(ROOT)["config"], **RUN, "runs-dir": str(folder / "runs")}
    config = {**RUN, **run_config(args.config, defaults, len(record.node_ids))}
    if config.get("data-dir", record.data_dir) != record.data_dir and not str(config.get("partition")).startswith(
        "own"
    ):
        again = f"{command(folder, 'up')} --data-dir {shlex.quote(str(config['data-dir']))}"
        raise LaunchError(f"the nodes look for data elsewhere than in {config['data-dir']}; start them anew by {again}")
    started = control(folder, record).run(ROOT, config, folder / "started")
    shown = Filter(args.verbose)
    try:
        for line in started.follow():
            for kept in shown.show(line):
                print(kept, flush=True)
        for kept in shown.held:  # a traceback that was cut short
            print(kept, flush=True)
        if started.status() != "finished:completed":
            raise LaunchError(started.reason())
    except BaseException:
        ignore_endings()
        started.stop()
        raise
    return 0


def down(args: argparse.Namespace) -> int:
    """End what `up` started, and nothing else."""
    if Record.read(args.folder) is None:  # and no folder is made to find that out
        print(f"nothing runs in {args.folder}")
        return 0
    with alone(args.folder):
        record = Record.read(args.folder)
        if record is None or not record.runs():
            print(f"nothing runs in {args.folder}")
            return 0
        ignore_endings()
        record.end()
    print(f"ended; keys, logs, data and state are left in {args.folder}")
    return 0


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold `folder` for this command; raise `LaunchError` if another one starts or ends a federation there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise LaunchError(f"{folder} cannot hold a federation: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LaunchError(
                f"another `deploy/local` starts or ends the federation in {folder}; wait for it"
            ) from None
        yield


def living(folder: Path) -> Record:
    """Return the record of the federation that runs in `folder`; raise `LaunchError` if none does."""
    record = Record.read(folder)
    if record is None or not record.runs():
        raise LaunchError(f"nothing runs in {folder}; start it with {command(folder, 'up')}")
    return record


def control(folder: Path, record: Record) -> Control:
    """Return the `flwr` command for the federation in `folder`."""
    return Control(folder / "flower", record.mark)


def command(folder: Path, name: str) -> str:
    """Return the line that a user types."""
    line = f"{shlex.quote(str(ROOT / 'deploy' / 'local'))} {name}"
    return line if folder == FOLDER else f"{line} --folder {shlex.quote(str(folder))}"


def state(running: bool) -> str:
    """Return the word for it."""
    return "runs" if running else "has ended"


def parse_args() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="deploy/local", description="A real federation on this machine.")
    commands = parser.add_subparsers(required=True, metavar="up | status | run | down")
    for does, text in (
        (up, "start a SuperLink and SuperNodes, in the background"),
        (status, "say what runs"),
        (run, "train over it"),
        (down, "end exactly what `up` started"),
    ):
        added = commands.add_parser(does.__name__, help=text, description=text.capitalize() + ".")
        added.set_defaults(does=does)
        added.add_argument("--folder", type=Path, default=FOLDER, help="where all of it lies (default: runs/local)")
        if does is up:
            added.add_argument("nodes", type=int, nargs="?", default=NODES, help="SuperNodes (default: %(default)s)")
            text = "a folder with data that all nodes read, where it is not for each to bring its own"
            added.add_argument("--data-dir", type=Path, metavar="DIR", help=text)
        if does is run:
            text = f"settings of the run (default: the app's, with {', '.join(f'{k}={v}' for k, v in RUN.items())})"
            added.add_argument(
                *("-c", "--run-config"), dest="config", action="append", default=[], metavar="KEY=VALUE ...", help=text
            )
            added.add_argument("--verbose", action="store_true", help="show all that Flower prints")
    args = parser.parse_args()
    args.folder = args.folder.expanduser().absolute()
    return args


def main() -> int:
    """Return the exit status: not 0, with one sentence as the last line, if what was asked for could not be done."""
    args = parse_args()
    try:
        with signals_as_exits():
            does: Callable[[argparse.Namespace], int] = args.does
            return does(args)
    except (LaunchError, KeyFileError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
