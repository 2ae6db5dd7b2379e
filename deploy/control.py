"""What an operator asks of a SuperLink, by the `flwr` command: register nodes, start runs, say how things stand."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.environment import environment
from deploy.program import MARK, POLL_S, Program, end, wait_until
from deploy.run_config import LaunchError, copy_app, to_toml

CONNECTION = "local"
STARTED = re.compile(r"Successfully started run (\d+)")
COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Control:
    """The `flwr` command with a folder of its own for its settings; the connection in it is named ``local``."""

    home: Path
    mark: str

    def connect(self, address: str, authority: Path) -> None:
        """Let the connection be to the SuperLink at `address`, whose certificate `authority` has signed."""
        self.home.mkdir(parents=True, exist_ok=True)
        lines = to_toml({"address": address, "root-certificates": str(authority)})
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{lines}'
        )

    def start(self, arguments: list[str]) -> "subprocess.Popen[str]":
        """Start a `flwr` command whose answer is JSON; `answer` waits for it."""
        return subprocess.Popen(
            ["flwr", *arguments, "--format", "json"],
            cwd=self.home,
            env=environment(self.home) | {MARK: f"{self.mark}flwr/"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ask(self, arguments: list[str]) -> dict[str, Any]:
        """Return the answer of a `flwr` command; raise `LaunchError` with what it said if it failed."""
        return answer(self.start(arguments))

    def register(self, keys: list[Path]) -> list[str]:
        """Return the ids of the nodes with these public keys, from now on welcome at the SuperLink."""
        asked = [self.start(["supernode", "register", str(key), CONNECTION]) for key in keys]
        try:
            return [str(answer(child)["node-id"]) for child in asked]
        finally:
            for child in asked:
                child.kill()  # after a failure, the others' answers are of no use
                child.communicate()

    def nodes(self) -> dict[str, str]:
        """Return the status of each node by its id: registered, online or offline."""
        listed = self.ask(["supernode", "list", CONNECTION])["nodes"]
        return {str(node["node-id"]): str(node["status"]) for node in listed}

    def runs(self) -> list[dict[str, Any]]:
        """Return what the SuperLink says of its runs, the newest first."""
        runs: list[dict[str, Any]] = self.ask(["list", CONNECTION])["runs"]
        return runs

    def run(self, app: Path, config: Mapping[str, object], folder: Path) -> "Run":
        """Return a run of the app in the folder `app`, started with the settings `config`.

        Copies of both, and the log, go to a new folder in `folder`.  Raises `LaunchError` if it cannot start.
        """
        folder = _numbered(folder)
        copy_app(folder / "app", app)
        (folder / "run.toml").write_text(to_toml(config))
        follower = Program("flwr run", f"{self.mark}run-{folder.name}/", folder / "run.log")
        command = ["flwr", "run", str(folder / "app"), CONNECTION, "--stream"]
        try:
            follower.start([*command, "--run-config", str(folder / "run.toml")], folder, environment(self.home))
            wait_until(lambda: not follower.running() or _run_id(follower.log), COMMAND_TIMEOUT_S)
            if run_id := _run_id(follower.log):
                return Run(run_id, self, follower)
            raise LaunchError(f"the run did not start: {follower.tail()}")
        except BaseException:
            if run_id := _run_id(follower.log):  # it has begun, and nobody would know of it
                Run(run_id, self, follower).stop()
            end([follower], grace_s=1)
            raise


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an app; a `flwr run` in the background writes down what it says."""

    run_id: str
    control: Control
    follower: Program

    def log(self) -> str:
        """Return what the ServerApp has printed so far, and a few lines of `flwr run`."""
        return self.follower.log.read_text(errors="replace")

    def follow(self) -> Iterator[str]:
        """Return the lines of the log, those to come included, until the run has ended."""
        with self.follower.log.open(errors="replace") as log:
            line = ""
            while True:
                running = self.follower.running()  # asked first: what a follower that has ended wrote is all there
                for piece in iter(log.readline, ""):
                    line += piece
                    if line.endswith("\n"):  # else the rest of it comes later
                        yield line.removesuffix("\n")
                        line = ""
                if not running:
                    break
                time.sleep(POLL_S)
            if line:
                yield line

    def status(self) -> str:
        """Return pending, starting, running, finished:completed, finished:failed or finished:stopped.

        It takes a `flwr` process, so a second or more: to wait for the end of a run, use `wait`.
        """
        return str(self._details()["status"])

    def reason(self) -> str:
        """Return why the run failed, in the SuperLink's words; empty if it did not."""
        return " ".join(
            str(self._details()["status-details"]).removeprefix("ServerApp failed with exception: ").split()
        )

    def wait(self, timeout_s: float) -> str:
        """Return the status once the run has ended, or after `timeout_s` seconds."""
        wait_until(lambda: not self.follower.running(), timeout_s)
        return self.status()

    def stop(self) -> None:
        """End the run, and what follows it; nothing happens if it has ended."""
        try:
            with suppress(LaunchError):  # it has ended, or the SuperLink has
                self.control.ask(["stop", self.run_id, CONNECTION])
        finally:
            end([self.follower], grace_s=1)

    def _details(self) -> dict[str, Any]:
        runs: list[dict[str, Any]] = self.control.ask(["list", CONNECTION, "--run-id", self.run_id])["runs"]
        return runs[0]


def answer(child: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the JSON that a `flwr` command prints; raise `LaunchError` with what it said instead."""
    try:
        text = child.communicate(timeout=COMMAND_TIMEOUT_S)[0]
        found: dict[str, Any] = json.loads(text[text.index("{") :])
    except (subprocess.TimeoutExpired, ValueError):
        child.kill()
        text = child.communicate()[0]
        raise LaunchError(f"flwr did not answer: {' '.join(text.split()) or 'it said nothing'}") from None
    if not found.get("success"):
        raise LaunchError(f"flwr refused: {' '.join(str(found.get('error-message', found)).split())}")
    return found


def _run_id(log: Path) -> str:
    found = STARTED.search(log.read_text(errors="replace"))
    return found[1] if found else ""


def _numbered(folder: Path) -> Path:
    """Return a new folder in `folder`, whose name is the next number."""
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in folder.iterdir()) + 1
    while True:
        try:
            (folder / str(number)).mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder / str(number)
