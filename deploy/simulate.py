"""Run the Flower app in simulation on this machine, and leave nothing behind.

`flwr run .` alone starts a SuperLink that outlives the run, may build a second environment for the app, and returns
zero when the run has failed.  This launcher starts a SuperLink of its own, with a home of its own, on a free loopback
port; runs the app on it; returns the run's own outcome; and stops what it started, by process id, however it ends.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from deploy.environment import environment, free_ports
from deploy.lines import Filter
from deploy.processes import adopt_orphans, ignore_endings, signals_as_exits, stop
from deploy.run_config import ROOT, Config, LaunchError, app_of, copy_app, parse_config, run_config, to_toml

STARTUP_TIMEOUT_S = 60.0


def start_superlink(home: Path, env: Mapping[str, str], started: list[subprocess.Popen[str]]) -> None:
    """Start a SuperLink in simulation mode, wait until it answers, and make it the connection of `home`."""
    [port] = free_ports(1)
    log = home / "superlink.log"
    command = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as sink:
        superlink = subprocess.Popen(
            command,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
    started.append(superlink)
    deadline = time.monotonic() + STARTUP_TIMEOUT_S
    while not _answers(port):
        if superlink.poll() is not None or time.monotonic() > deadline:
            last = (log.read_text(errors="replace").strip() or "it wrote no log").splitlines()[-1]
            raise LaunchError(f"the SuperLink did not start: {last}")
        time.sleep(0.1)
    connection = {"address": f"127.0.0.1:{port}", "insecure": True}
    (home / "config.toml").write_text(f'[superlink]\ndefault = "own"\n[superlink.own]\n{to_toml(connection)}')


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def follow(
    command: list[str], home: Path, env: Mapping[str, str], shown: Filter, started: list[subprocess.Popen[str]]
) -> None:
    """Run `flwr run`, printing what `shown` lets through until the run has ended."""
    client = subprocess.Popen(
        command,
        cwd=home,  # Ray imports from here first: nothing of the caller's folder must be found
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    started.append(client)
    last = ""
    for line in client.stdout or ():
        last = line.strip() or last
        for kept in shown.show(line.rstrip("\n")):
            print(kept, flush=True)
    for kept in shown.held:  # a traceback that was cut short
        print(kept, flush=True)
    if client.wait() != 0:
        raise LaunchError(f"flwr run ended with {client.returncode}: {last}")


def outcome(env: Mapping[str, str]) -> None:
    """Return if the run on the private SuperLink completed; otherwise raise with its reason."""
    answer = subprocess.run(["flwr", "list", "--format", "json"], env=env, capture_output=True, text=True, check=False)
    try:
        run = json.loads(answer.stdout)["runs"][0]
    except (ValueError, LookupError):
        raise LaunchError(f"the SuperLink does not say how the run ended: {answer.stdout}{answer.stderr}") from None
    if run["status"] != "finished:completed":
        reason = str(run["status-details"]).removeprefix("Simulation failed with exception: ")
        raise LaunchError(" ".join(reason.split()) or f"the run is {run['status']}")


def simulate(args: argparse.Namespace) -> None:
    """Run the app once, on a federation of this machine; raise `LaunchError` if it fails."""
    config = run_config(args.config, app_of(ROOT)["config"], args.nodes)
    workers = min(args.workers or os.cpu_count() or 1, args.nodes)
    federation: Config = {"client-resources-num-cpus": 1, "init-args-num-cpus": workers}
    federation |= parse_config(args.federation) | {"num-supernodes": args.nodes}
    short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108  (Ray's sockets need a short path)
    home = Path(tempfile.mkdtemp(prefix="fedcomp-", dir=short))
    env = environment(home)
    started: list[subprocess.Popen[str]] = []
    try:
        (home / "run.toml").write_text(to_toml(config))
        start_superlink(home, env, started)
        copy_app(home / "app")
        command = ["flwr", "run", str(home / "app"), "--stream", "--run-config", str(home / "run.toml")]
        command += ["--federation-config", to_toml(federation).replace(" = ", "=").replace("\n", " ")]
        follow(command, home, env, Filter(args.verbose), started)
        outcome(env)
    finally:
        ignore_endings()  # a second Ctrl-C must not leave a half-stopped federation
        stop(started)
        shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    """Return the exit status: 0 for a run that completed, 1 with one sentence as the last line for one that did not."""
    parser = argparse.ArgumentParser(description="Run the Flower app in simulation, and leave no process behind.")
    parser.add_argument("--nodes", type=int, default=50, help="simulated nodes (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="nodes that work at once (default: one a core)")
    for flags, name, text in (
        (("-c", "--run-config"), "config", "settings of the run"),
        (("--federation",), "federation", "more of Flower's --federation-config"),
    ):
        parser.add_argument(*flags, dest=name, action="append", default=[], metavar="KEY=VALUE ...", help=text)
    parser.add_argument("--verbose", action="store_true", help="show all that Flower and Ray print")
    args = parser.parse_args()
    if args.nodes < 1 or args.workers < 0:
        parser.error("--nodes must be at least 1, and --workers at least 0")
    adopt_orphans()
    try:
        with signals_as_exits():
            simulate(args)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
