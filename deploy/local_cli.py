"""`deploy/local`: a federation on this machine that stays up between commands.

deploy/local up 3                     # a SuperLink and three SuperNodes, in the background
deploy/local run -c "num-rounds=20"   # train over it
deploy/local status
deploy/local down                     # end exactly what `up` started
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

from deploy.control import CONNECTION, Control
from deploy.federation import LAUNCHERS, Federation
from deploy.keys import KeyFileError
from deploy.process_file import ProcessFile
from deploy.program import ignore_end_signals, signals_as_exits
from deploy.run_config import ROOT, Config, LaunchError, app_of, run_config
from deploy.stop_report import StopReport, watch_command
from fedcomp.commands import path_of
from fedcomp.data import parse_partition

FOLDER = ROOT / "runs" / "local"
NODES = 3
RUN: Config = {"num-rounds": 10, "fraction-train": 1.0, "checkpoint-every": 1}
"""Settings of a run that differ from the app's: with a handful of nodes, all train in each round."""


def up(args: argparse.Namespace) -> int:
    """Start a federation in the background; if it cannot be started, leave nothing."""
    folder: Path = args.folder
    if args.nodes < 1:
        raise LaunchError(f"{args.nodes} nodes; at least 1 is needed")
    data = args.data_dir.absolute() if args.data_dir else None
    if data and not data.is_dir():
        raise LaunchError(f"--data-dir is {args.data_dir}, which is no folder; the folder with the data is needed")
    with locked(folder):
        if (record := ProcessFile.read(folder)) and record.running():
            raise LaunchError(f"a federation runs in {folder} already; end it with {command(folder, 'down')}")
        federation = Federation(folder, args.nodes)
        for node in federation.nodes if data else ():
            node.config["data-dir"] = str(data)
        try:
            ProcessFile.of(federation, data).write(folder)  # if this command is killed now, `down` finds the rest
            print(f"starting a SuperLink and {args.nodes} SuperNodes", flush=True)
            federation.start()
            ProcessFile.of(federation, data).write(folder)
        except BaseException:
            ignore_end_signals()
            federation.close()
            raise
    superlink = federation.superlink
    flwr = [Path(sys.executable).parent / "flwr", "run", ROOT, CONNECTION]
    print(f"running: SuperLink {superlink.address}, health {superlink.health_address} (gRPC), all in {folder}")
    print(f'train:    {command(folder, "run")} -c "num-rounds=20"')
    print(f"or:       FLWR_HOME={shlex.quote(str(federation.control.home))} {shlex.join(map(str, flwr))}")
    print(f"look:     {command(folder, 'status')}")
    print(f"watch:    {watch_command(folder / 'runs' / 'NAME')}, the name of a run in place of NAME")
    print(f"end:      {command(folder, 'down')}")
    return 0


def status(args: argparse.Namespace) -> int:
    """Print what runs; return 1 if a program has ended."""
    record, control = running_federation(args.folder)
    superlink, *nodes = record.programs()
    serves = superlink.running()
    words = {True: "runs", False: "has ended"}
    print(f"{superlink.name:14} {words[serves]:9} {record.address}, log {superlink.log}")
    known = control.nodes() if serves else {}
    alive = [node.running() for node in nodes]
    for node, node_id, runs in zip(nodes, record.node_ids, alive, strict=True):
        seen = f"{known.get(node_id, 'unknown')} at the SuperLink"
        print(f"{node.name:14} {words[runs]:9} node id {node_id}, {seen}, log {node.log}")
    for run in control.runs() if serves else ():
        print(f"run {run['run-id']}  {run['status']}  {float(run['elapsed']):.0f} s")
    return 0 if serves and all(alive) else 1


def run(args: argparse.Namespace) -> int:
    """Train over the federation; the run ends if this command is interrupted."""
    folder: Path = args.folder
    record, control = running_federation(folder)
    defaults = {**app_of(ROOT)["config"], **RUN, "runs-dir": str(folder / "runs")}
    config = {**RUN, **run_config(args.config, defaults, len(record.node_ids))}
    shared_out = not parse_partition(str(config.get("partition", defaults["partition"]))).own
    if shared_out and config.get("data-dir", record.data_dir) != record.data_dir:
        again = f"{command(folder, 'up')} --data-dir {shlex.quote(str(config['data-dir']))}"
        raise LaunchError(f"the nodes do not read their data from {config['data-dir']}; restart them with {again}")
    line = shlex.split(command(folder, "run"))
    for settings in args.config:
        line += ["-c", settings]
    with StopReport(Path(str(config["runs-dir"])), line, resumes=config.get("resume") is True) as report:
        report.run = control.run(ROOT, config, folder / "started")
        report.run.follow(verbose=args.verbose, note=report.how_to_watch)
    return 0


def down(args: argparse.Namespace) -> int:
    """End what `up` started, and nothing else."""
    record = ProcessFile.read(args.folder)
    with locked(args.folder) if record else nullcontext():  # no folder is made for nothing
        record = record and ProcessFile.read(args.folder)  # without the lock, one that starts now is left alone
        if record and record.running():
            ignore_end_signals()
            record.end()
            print(f"ended; keys, logs, data and state are left in {args.folder}")
        else:
            print(f"nothing runs in {args.folder}")
    return 0


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock `folder` for this command; raise `LaunchError` if another one starts or ends a federation there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise LaunchError(f"another `deploy/local` starts or ends the federation in {folder}; wait for it") from None


def running_federation(folder: Path) -> tuple[ProcessFile, Control]:
    """Return the record of the federation that runs in `folder`, and its control; raise `LaunchError` if none runs."""
    record = ProcessFile.read(folder)
    if record is None or not record.running():
        raise LaunchError(f"nothing runs in {folder}; start it with {command(folder, 'up')}")
    launchers = folder / LAUNCHERS
    return record, Control(folder / "flower", record.mark, launchers if launchers.is_dir() else None)


def command(folder: Path, name: str) -> str:
    """Return the command line that a user types."""
    line = f"{shlex.quote(str(ROOT / 'deploy' / 'local'))} {name}"
    return line if folder == FOLDER else f"{line} --folder {shlex.quote(str(folder))}"


def parse_args() -> argparse.Namespace:
    """Return the command and its options."""
    parser = argparse.ArgumentParser(prog="deploy/local", description="A real federation on this machine.")
    commands = parser.add_subparsers(required=True, metavar="up | status | run | down")
    for does, text in (
        (up, "start a SuperLink and SuperNodes, in the background"),
        (status, "show what runs"),
        (run, "train over it"),
        (down, "end exactly what `up` started"),
    ):
        added = commands.add_parser(does.__name__, help=text, description=text.capitalize() + ".")
        added.set_defaults(does=does)
        added.add_argument("--folder", type=path_of, default=FOLDER, help="of the federation (default: runs/local)")
        if does is up:
            added.add_argument("nodes", type=int, nargs="?", default=NODES, help="SuperNodes (default: %(default)s)")
            text = "a folder with data that all nodes read; otherwise each reads its own"
            added.add_argument("--data-dir", type=path_of, metavar="DIR", help=text)
        if does is run:
            text = f"settings of the run (default: the app's, with {', '.join(f'{k}={v}' for k, v in RUN.items())})"
            added.add_argument(
                *("-c", "--run-config"), dest="config", action="append", default=[], metavar="KEY=VALUE ...", help=text
            )
            added.add_argument("--verbose", action="store_true", help="show everything that Flower prints")
    args = parser.parse_args()
    args.folder = args.folder.absolute()
    return args


def main() -> int:
    """Return the exit status: 1, after one sentence, if the command failed."""
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
