"""What an operator does with a SuperLink, by the `flwr` command: register nodes, start and stop runs, list both."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from deploy.environment import environment
from deploy.log_filter import LogFilter
from deploy.program import MARK, POLL_S, Program, end, ignore_end_signals, wait_until
from deploy.run_config import Config, LaunchError, copy_app, to_arguments

CONNECTION = "local"
COMPLETED = "finished:completed"
COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Control:
    """The `flwr` command with a settings folder of its own, `home`; the connection in it is named ``local``."""

    home: Path
    mark: str
    launchers: Path | None = None
    """The folder of launchers that come before Flower's own programs."""

    def connect(self, address: str, authority: Path | None = None) -> None:
        """Connect to the SuperLink at `address`; without the certificate `authority`, the connection has no TLS."""
        self.home.mkdir(parents=True, exist_ok=True)
        trust = {"root-certificates": str(authority)} if authority else {"insecure": True}
        superlink = {"default": CONNECTION, CONNECTION: {"address": address, **trust}}
        (self.home / "config.toml").write_text(tomli_w.dumps({"superlink": superlink}))

    def ask(self, arguments: list[str]) -> dict[str, Any]:
        """Return the JSON that a `flwr` command prints; raise `LaunchError` with its output if it fails."""
        try:
            output = subprocess.run(
                ["flwr", *arguments, "--format", "json"],
                cwd=self.home,
                env=environment(self.home, self.launchers) | {MARK: f"{self.mark}flwr/"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired:
            raise LaunchError(f"flwr did not answer within {COMMAND_TIMEOUT_S:.0f} s") from None
        try:
            answer: dict[str, Any] = json.loads(output[output.index("{") :])
        except ValueError:
            raise LaunchError(f"flwr did not answer: {_line(output) or 'it printed nothing'}") from None
        if not answer.get("success"):
            raise LaunchError(f"flwr refused: {_line(str(answer.get('error-message', answer)))}")
        return answer

    def register(self, keys: list[Path]) -> list[str]:
        """Register nodes with these public keys at the SuperLink, and return their ids."""
        commands = [["supernode", "register", str(key), CONNECTION] for key in keys]
        with ThreadPoolExecutor() as executor:
            return [str(answer["node-id"]) for answer in executor.map(self.ask, commands)]

    def nodes(self) -> dict[str, str]:
        """Return the status of each node by its id: registered, online or offline."""
        listed = self.ask(["supernode", "list", CONNECTION])["nodes"]
        return {str(node["node-id"]): str(node["status"]) for node in listed}

    def runs(self) -> list[dict[str, Any]]:
        """Return the SuperLink's records of its runs, the newest first."""
        return list(self.ask(["list", CONNECTION])["runs"])

    def run(self, app: Path, config: Mapping[str, object], folder: Path, federation: Config | None = None) -> "Run":
        """Start the app in the folder `app` with the settings `config`, and return the run.

        `federation` are settings of the simulation, if there is one.  Copies of the app and of its settings, and the
        log, go to a new folder in `folder`.  Raises `LaunchError` if the run cannot start.
        """
        folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=time.strftime("%m%d-%H%M%S-"), dir=folder))
        copy_app(folder / "app", app)
        (folder / "run.toml").write_text(tomli_w.dumps(config))
        command = ["flwr", "run", str(folder / "app"), CONNECTION, "--stream", "--run-config", str(folder / "run.toml")]
        command += ["--federation-config", to_arguments(federation)] if federation else []
        follower = Program("flwr run", f"{self.mark}run-{folder.name}/", folder / "run.log")
        try:
            follower.start(command, folder, environment(self.home, self.launchers))
            wait_until(lambda: not follower.running() or _run_id(follower), COMMAND_TIMEOUT_S)
            if run_id := _run_id(follower):
                return Run(run_id, self, follower)
            raise LaunchError(f"the run did not start: {follower.last_line()}")
        except BaseException:
            if run_id := _run_id(follower):  # it runs, and nobody else knows its id
                Run(run_id, self, follower).stop()
            end([follower], grace_s=1)
            raise


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an app; a `flwr run` in the background writes its log."""

    run_id: str
    control: Control
    follower: Program

    def log(self) -> str:
        """Return what the ServerApp has printed so far, and a few lines of `flwr run`."""
        return self.follower.log_text()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the log, also those to come, until the run has ended."""
        with self.follower.log.open(errors="replace") as log:
            line = ""
            running = True
            while running:
                running = self.follower.running()  # before reading: a follower that has ended has written everything
                while piece := log.readline():
                    line += piece
                    if line.endswith("\n"):  # else the rest of the line comes later
                        yield line.removesuffix("\n")
                        line = ""
                time.sleep(POLL_S if running else 0)
            if line:
                yield line

    def follow(self, *, verbose: bool, note: Callable[[str], str | None] = lambda _: None) -> None:
        """Print the log until the run has ended; stop the run if this is interrupted.

        `note` returns what is printed after a line of the log, if anything.  Raises `LaunchError` with the reason if the run
        does not complete.
        """
        shown = LogFilter(verbose)
        try:
            for line in self.lines():
                for kept in (*shown.show(line), note(line)):
                    if kept is not None:
                        print(kept, flush=True)
        except BaseException:
            ignore_end_signals()
            print("\nstopping the run", file=sys.stderr, flush=True)
            self.stop()
            raise
        for kept in shown.held:  # a traceback that was cut short
            print(kept, flush=True)
        if (status := self.status()) != COMPLETED:
            raise LaunchError(self.reason() or f"the run is {status}")

    def status(self) -> str:
        """Return pending, starting, running, finished:completed, finished:failed or finished:stopped.

        This starts a `flwr` process and takes a second or more: to wait for the end of a run, use `wait`.
        """
        return str(self._details()["status"])

    def reason(self) -> str:
        """Return why the run failed, as the SuperLink reports it; empty if it did not."""
        line = _line(str(self._details()["status-details"]))
        return re.sub(r"^(ServerApp|Simulation) failed with exception: ", "", line)

    def wait(self, timeout_s: float) -> str:
        """Return the status once the run has ended, or after `timeout_s` seconds."""
        wait_until(lambda: not self.follower.running(), timeout_s)
        return self.status()

    def stop(self) -> None:
        """End the run and its follower; nothing happens if it has ended."""
        try:
            with suppress(LaunchError):  # the run has ended, or the SuperLink has
                self.control.ask(["stop", self.run_id, CONNECTION])
        finally:
            end([self.follower], grace_s=1)

    def _details(self) -> dict[str, Any]:
        return dict(self.control.ask(["list", CONNECTION, "--run-id", self.run_id])["runs"][0])


def _line(text: str) -> str:
    return " ".join(text.split())


def _run_id(follower: Program) -> str:
    found = re.search(r"Successfully started run (\d+)", follower.log_text())
    return found[1] if found else ""
