"""Run the Flower app in simulation on this machine, and leave nothing behind.

`flwr run .` alone starts a SuperLink that outlives the run, may build a second environment for the app, and returns
zero when the run has failed.  This launcher starts a SuperLink of its own, with a home of its own, on a free loopback
port; runs the app on it; returns the run's own outcome; and stops what it started, by process id, however it ends.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from deploy.lines import Filter
from deploy.processes import adopt_orphans, ignore_endings, signals_as_exits, stop
from server.settings import Settings, SettingsError

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("data-dir", "runs-dir")  # the run's processes have other working directories: these must be absolute
STARTUP_TIMEOUT_S = 60.0

Config = dict[str, object]


class LaunchError(Exception):
    """The run cannot start or has failed; the text is one sentence."""


def parse_config(texts: list[str]) -> Config:
    """Return the settings in texts like ``key=value key='text with spaces'``; a value that is no TOML is a text."""
    config: Config = {}
    for text in texts:
        rest = re.sub(r"""([^\s=]+)=('[^']*'|"[^"]*"|\S+)""", lambda pair: _add(config, pair), text).split()
        if rest:
            raise LaunchError(f"{rest[0]!r} is no setting; write settings as key=value, with spaces between them")
    return config


def _add(config: Config, pair: re.Match[str]) -> str:
    key, value = pair.groups()
    try:
        config[key] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        config[key] = value
    return ""


def run_config(texts: list[str], defaults: Mapping[str, object], num_nodes: int) -> Config:
    """Return the settings that differ from the defaults, with absolute paths; raise `LaunchError` for a wrong one.

    All nodes are waited for unless `min-nodes` says otherwise: here they are known to come.
    """
    config = {"min-nodes": num_nodes} | parse_config(texts)
    for key in PATHS:
        path = config.get(key, defaults.get(key))
        if isinstance(path, str) and path:
            config[key] = str(Path(path).expanduser().absolute())
    try:
        Settings.from_config({**defaults, **config})
    except SettingsError as error:
        raise LaunchError(str(error)) from None
    return config


def to_toml(config: Mapping[str, object]) -> str:
    """Return `config` as TOML lines; JSON's texts, numbers and booleans are TOML's."""
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in config.items())


def environment(home: Path) -> dict[str, str]:
    """Return the environment of all processes of a run."""
    own = {
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_WAIT_POLICY": "passive",  # a waiting thread that spins takes the core from the next client
        # Flower starts its parts by name
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "RAY_ADDRESS": "local",  # never a cluster that runs here already
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    return os.environ | own


def copy_app(target: Path, patterns: list[str]) -> None:
    """Copy what Flower bundles into a folder of its own: in the project's, Flower would walk all of `.venv` first."""
    target.mkdir()
    for name in {"pyproject.toml", *(pattern.split("/")[0] for pattern in patterns)}:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_superlink(home: Path, env: Mapping[str, str], started: list[subprocess.Popen[str]]) -> None:
    """Start a SuperLink in simulation mode, wait until it answers, and make it the connection of `home`."""
    port = free_port()
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
    with (ROOT / "pyproject.toml").open("rb") as file:
        app = tomllib.load(file)["tool"]["flwr"]["app"]
    config = run_config(args.config, app["config"], args.nodes)
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
        copy_app(home / "app", app["fab-include"])
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
