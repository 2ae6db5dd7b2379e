"""Run the Flower app in simulation on this machine, and leave no process behind.

`flwr run .` alone starts a SuperLink that outlives the run, may build a second environment for the app, and returns
zero for a run that failed.  This launcher starts a SuperLink of its own on a free loopback port, runs the app on it,
returns the outcome of the run, and ends every process that it started, however it ends itself; if it is killed, its next
start ends them.
"""

import argparse
import os
import sys
from pathlib import Path

try:
    from deploy.control import Control
    from deploy.environment import environment
    from deploy.federation import end_all
    from deploy.flower_programs import SuperLink
    from deploy.program import Program, ignore_end_signals, signals_as_exits
    from deploy.run_config import ROOT, LaunchError, app_of, check_run, federation_config, run_config
    from deploy.scratch import mark_of_folder, scratch_folder
    from deploy.stop_report import StopReport
except ModuleNotFoundError as error:  # of the app, or of a library that it needs
    need = "in fedcomp's folder, `make install` installs everything into .venv"
    sys.exit(f"error: {error.name} is not installed for {sys.executable}; {need}")


def simulate(args: argparse.Namespace) -> None:
    """Run the app once, on simulated nodes; raise `LaunchError` if it fails."""
    config = run_config(args.config, app_of(ROOT)["config"], args.nodes)
    check_run(config, args.nodes)
    workers = min(args.workers or os.cpu_count() or 1, args.nodes)
    federation = federation_config(args.federation, workers) | {"num-supernodes": args.nodes}
    report = StopReport(Path(str(config["runs-dir"])), sys.orig_argv, resumes=config.get("resume") is True)
    with scratch_folder() as home, report:
        mark = mark_of_folder(home)
        superlink = SuperLink(
            Program("SuperLink", f"{mark}superlink/", home / "superlink.log"), ["--insecure", "--simulation"]
        )
        try:
            superlink.start(home, environment(home))
            control = Control(home, mark)
            control.connect(superlink.address)
            report.run = control.run(ROOT, config, home / "started", federation)
            report.run.follow(verbose=args.verbose, note=report.how_to_watch)
        finally:
            ignore_end_signals()
            end_all([superlink.program], mark)


def main() -> int:
    """Return the exit status: 0 for a run that completed, or 1 after one sentence."""
    parser = argparse.ArgumentParser(description="Run the Flower app in simulation, and leave no process behind.")
    parser.add_argument("--nodes", type=int, default=50, help="simulated nodes (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="nodes that work at once (default: one a core)")
    for flags, name, text in (
        (("-c", "--run-config"), "config", "settings of the run"),
        (("--federation",), "federation", "more of Flower's --federation-config"),
    ):
        parser.add_argument(*flags, dest=name, action="append", default=[], metavar="KEY=VALUE ...", help=text)
    parser.add_argument("--verbose", action="store_true", help="show everything that Flower and Ray print")
    args = parser.parse_args()
    if args.nodes < 1 or args.workers < 0:
        parser.error("--nodes must be at least 1, and --workers at least 0")
    try:
        with signals_as_exits():
            simulate(args)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
