"""A process that is forked behaves as one that was started: the calls here run the same program both ways."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from fedcomp.warm import install, launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

PROBE = """
import json, os, random, signal, sys, threading, time
import numpy

def main():
    action = sys.argv[1] if len(sys.argv) > 1 else "describe"
    if action == "describe":
        umask = os.umask(0)
        os.umask(umask)
        files = sorted(os.listdir("/proc/self/fd"), key=int)
        print(json.dumps({
            "pid": os.getpid(), "parent": os.getppid(), "arguments": sys.argv[1:], "name": os.path.basename(sys.argv[0]),
            "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask, "input": sys.stdin.read(),
            "threads": threading.active_count(), "files": [name for name in files if name not in "012"][:-1],
            "handlers": [str(signal.getsignal(number)) for number in (1, 2, 3, 10, 12, 15)],
            "random": [random.random(), float(numpy.random.random())],
            "libraries": [name for name in ("wave", "colorsys", "netrc") if name in sys.modules],
        }))
    elif action == "buffering":
        print(json.dumps([sys.stdout.line_buffering, sys.stderr.line_buffering]))
    elif action == "exit":
        sys.exit(int(sys.argv[2]) if sys.argv[2].isdigit() else sys.argv[2])
    elif action == "raise":
        raise ValueError("of the app")
    elif action == "kill":
        os.kill(os.getpid(), int(sys.argv[2]))
    elif action == "wait":
        def leave(number, frame):
            print("got", number, flush=True)
            sys.exit(40 + number)
        for number in (1, 2, 3, 10, 12, 15):
            signal.signal(number, leave)
        print(os.getpid(), flush=True)
        for _ in range(12_000):  # a test that fails leaves it behind, for two minutes
            time.sleep(0.01)
    elif action == "import":
        sys.path.insert(0, sys.argv[2])
        for name in sys.argv[3:]:
            print(__import__(name).__file__)
    elif action == "torch":
        preloaded = "torch" in sys.modules
        import torch
        print(json.dumps({"preloaded": preloaded, "random": torch.rand(3).tolist(), "cuda": torch.cuda.is_initialized()}))
    elif action == "report":
        with open(os.path.join(sys.argv[2], f"{os.getpid()}.json"), "w") as report:
            report.write(sys.argv[3])
"""
FORKED = "fedcomp.warm.server"
PATIENCE_S = 60.0


@dataclass
class Warm:
    """The folder of launchers, and the environment in which `probe` is one of them."""

    folder: Path
    environment: dict[str, str]

    def popen(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        environment = options.pop("env", self.environment)
        pipe = subprocess.PIPE
        files = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
        return subprocess.Popen(["probe", *arguments], env=environment, text=True, **{**files, **options})

    def run(self, *arguments: str, text: str = "", **options: Any) -> "subprocess.CompletedProcess[str]":
        process = self.popen(*arguments, **options)
        out, err = process.communicate(text, timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def describe(self, *arguments: str, **options: Any) -> dict[str, Any]:
        done = self.run("describe", *arguments, **options)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def servers(self) -> list[psutil.Process]:
        """Return the fork servers of this folder."""
        mine = []
        for process in psutil.process_iter():
            try:
                if {FORKED, str(self.folder)} <= set(process.cmdline()):
                    mine.append(process)
            except psutil.Error:
                continue
        return [process for process in mine if process.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        for process in self.servers():
            process.kill()
        wait_for(lambda: not self.servers())


def wait_for(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def warm_in(folder: Path, preloaded: Sequence[str] = ("numpy",), *, broken: bool = False, **options: Any) -> Warm:
    """Return a fork server for the program `probe`, which is installed as a script of its own distribution."""
    site, scripts, launchers = folder / "site", folder / "bin", folder / "launchers"
    metadata = site / "probe-1.0.dist-info"
    for made in (metadata, scripts, launchers):
        made.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nprobe = probe:main\n")
    (site / "probe.py").write_text("import raises" if broken else PROBE)
    (site / "threads.py").write_text("from threading import *\nThread(target=Event().wait, daemon=True).start()\n")
    (site / "once.py").write_text("import builtins\nassert not hasattr(builtins, 'once')\nbuiltins.once = True\n")
    (site / "raises.py").write_text("raise OSError('no such disk')\n")
    (scripts / "probe").write_text(f"#!{sys.executable}\nimport sys, probe\nsys.exit(probe.main())\n")
    (scripts / "probe").chmod(0o700)
    path = os.pathsep.join([str(launchers), str(scripts), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    install(launchers, environment, commands=("probe",), preloaded=preloaded, **options)
    return Warm(launchers, environment)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    made = warm_in(tmp_path_factory.mktemp("warm"), ignored=("IGNORED",))
    yield made
    made.end()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Warm]:
    made = warm_in(tmp_path)
    yield made
    made.end()


def plain(made: Warm) -> dict[str, str]:
    """Return the environment without the launchers."""
    first, _, path = made.environment["PATH"].partition(os.pathsep)
    assert first == str(made.folder)
    return {**made.environment, "PATH": path}


def test_a_forked_process_has_what_a_started_one_has(shared: Warm, tmp_path: Path) -> None:
    options: dict[str, Any] = {"text": "some input", "cwd": tmp_path, "umask": 0o027}
    forked = shared.describe("an argument", "", "ä b", **options)
    started = shared.describe("an argument", "", "ä b", **options, env=plain(shared))
    assert forked["parent"] == shared.servers()[0].pid != started["parent"]
    assert forked["random"] != started["random"]
    assert forked["environment"].pop("PATH") != started["environment"].pop("PATH")
    for name in ("pid", "parent", "random"):
        del forked[name], started[name]
    for shell in ("_", "SHLVL", "OLDPWD", "PWD"):
        forked["environment"].pop(shell, None)
        started["environment"].pop(shell, None)
    assert forked == started


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_reach_a_terminal_as_they_do_from_a_started_one(shared: Warm, unbuffered: str) -> None:
    found = []
    for environment in (shared.environment, plain(shared)):
        far, near = pty.openpty()
        shared.run("buffering", env={**environment, "PYTHONUNBUFFERED": unbuffered}, stdout=near)
        found.append(json.loads(os.read(far, 100)))
        os.close(far)
        os.close(near)
    assert found[0] == found[1] == [not unbuffered, not unbuffered]


@pytest.mark.parametrize(
    "arguments",
    [("exit", "0"), ("exit", "7"), ("exit", "a sentence"), ("raise",), ("kill", "9"), ("kill", "11"), ("kill", "15")],
)
def test_it_ends_as_a_started_one_ends(shared: Warm, arguments: Sequence[str]) -> None:
    forked, started = shared.run(*arguments), shared.run(*arguments, env=plain(shared))
    assert forked.returncode == started.returncode
    assert forked.stdout == started.stdout
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


@pytest.mark.parametrize("number", launcher.PASSED_ON)
def test_signals_reach_it(shared: Warm, number: signal.Signals) -> None:
    process = shared.popen("wait")
    assert process.stdout
    assert int(process.stdout.readline()) != process.pid
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 40 + number
    assert out == f"got {int(number)}\n"


def test_other_programs_see_its_arguments_and_environment(shared: Warm) -> None:
    process = shared.popen("wait", env={**shared.environment, "IGNORED": "seen"})
    assert process.stdout
    forked = psutil.Process(int(process.stdout.readline()))
    assert [word for word in forked.cmdline() if word] == ["probe", "wait"]
    assert forked.environ()["IGNORED"] == "seen"
    assert launcher.ROOM not in forked.environ()
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_it_dies_with_its_launcher(shared: Warm) -> None:
    process = shared.popen("wait")
    assert process.stdout
    forked = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not forked.is_running())


def test_one_that_hangs_does_not_keep_others_waiting(shared: Warm) -> None:
    process = shared.popen("wait")
    assert process.stdout
    forked = psutil.Process(int(process.stdout.readline()))
    forked.suspend()
    assert shared.describe()["parent"] == forked.ppid()
    forked.kill()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL


def test_calls_at_the_same_time_run_at_the_same_time(shared: Warm) -> None:
    processes = [shared.popen("wait") for _ in range(5)]
    numbers = {process.stdout.readline() for process in processes if process.stdout}
    assert len(numbers) == 5
    for process in processes:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_random_numbers_are_new_in_each_process(shared: Warm) -> None:
    drawn = [shared.describe()["random"] for _ in range(3)]
    assert len({value for values in drawn for value in values}) == 6


@pytest.mark.system
def test_another_environment_has_a_server_of_its_own(shared: Warm) -> None:
    before = shared.describe()["parent"]
    started = psutil.Process(before).create_time(), psutil.Process(before).environ().get("ADDED")
    found = shared.describe(env={**shared.environment, "ADDED": "a value"})
    assert found["environment"]["ADDED"] == "a value"
    assert psutil.Process(found["parent"]).environ()["ADDED"] == "a value" != started[1]
    assert "ADDED" not in shared.describe()["environment"]
    ignored = shared.describe(env={**shared.environment, "IGNORED": "x"})
    assert ignored["environment"]["IGNORED"] == "x"
    assert "IGNORED" not in psutil.Process(ignored["parent"]).environ()


def test_variables_of_the_server_alone_are_not_those_of_a_process(shared: Warm) -> None:
    shared.end()
    server = shared.describe(env={**shared.environment, "IGNORED": "of the server"})["parent"]
    found = shared.describe()
    assert found["parent"] == server
    assert "IGNORED" not in found["environment"]


def test_open_files_of_whoever_starts_the_server_are_not_those_of_a_process(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    made = warm_in(tmp_path)
    assert made.describe()["files"] == []
    assert os.getsid(made.servers()[0].pid) != os.getsid(0), "Ctrl-C in the terminal does not reach it"
    made.end()
    os.close(reading)
    os.close(writing)


def test_while_a_process_runs_another_environment_gets_plain_flower(shared: Warm) -> None:
    process = shared.popen("wait")
    assert process.stdout
    process.stdout.readline()
    done = shared.run("describe", env={**shared.environment, "ADDED": "a value"})
    assert json.loads(done.stdout)["parent"] == os.getpid()
    assert done.stderr == "fedcomp warm: the fork server runs processes of another environment; plain Flower runs\n"
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.system
def test_libraries_of_the_app_are_known_from_the_second_message_on(alone: Warm, tmp_path: Path) -> None:
    first, second = tmp_path / "app.1", tmp_path / "app.2"
    assert alone.describe()["libraries"] == []
    assert alone.run("import", str(first), "wave").returncode == 0
    assert alone.describe()["libraries"] == ["wave"]
    assert alone.run("import", str(first), "colorsys").returncode == 0
    assert alone.describe()["libraries"] == ["wave", "colorsys"], "also those that a later message needs"
    assert alone.run("import", str(second), "netrc").returncode == 0
    assert alone.describe()["libraries"] == ["netrc"], "another app has another server"
    assert not list(alone.folder.glob("[0-9]*"))


def test_a_module_of_the_app_comes_before_a_library_of_the_same_name(tmp_path: Path) -> None:
    made = warm_in(tmp_path, ["wave", "once"])
    app = tmp_path / "app"
    app.mkdir()
    (app / "wave.py").touch()
    (app / "once").mkdir()  # no package: its files are no module, and the library is not imported twice
    (app / "once" / "card.toml").touch()
    (app / "numpy.py").touch()  # not this one: the program itself has imported the library
    done = made.run("import", str(app), "wave", "once", "numpy")
    started = made.run("import", str(app), "wave", "once", "numpy", env=plain(made))
    assert done.stdout == started.stdout
    assert done.stdout.startswith(str(app / "wave.py"))
    made.end()


def test_a_server_that_was_killed_leaves_its_processes_alone_and_is_replaced(alone: Warm) -> None:
    process = alone.popen("wait")
    assert process.stdout
    forked = psutil.Process(int(process.stdout.readline()))
    [server] = alone.servers()
    server.kill()
    server.wait(PATIENCE_S)
    assert alone.describe()["parent"] == alone.servers()[0].pid != server.pid
    assert forked.is_running()
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "got 15\n"
    assert process.returncode == 1, "nobody knows its status"


@pytest.mark.system
def test_where_the_server_hangs_plain_flower_runs_and_the_command_runs_once(alone: Warm, tmp_path: Path) -> None:
    alone.describe()
    [server] = alone.servers()
    server.suspend()
    code = "from fedcomp.warm import launcher; launcher.REPLY_S = 0.5; launcher.main()"
    command = [sys.executable, "-c", code, str(alone.folder), "probe", "describe"]
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:  # the server holds them, too
        quiet = subprocess.DEVNULL
        subprocess.run(
            command, env=alone.environment, stdin=quiet, stdout=out, stderr=err, timeout=PATIENCE_S, check=True
        )
        server.resume()
        assert alone.describe()["parent"] == server.pid
        assert not server.children()
        out.seek(0)
        err.seek(0)
        assert json.loads(out.read())["parent"] == os.getpid()
        assert err.read() == "fedcomp warm: timed out; plain Flower runs\n"


@pytest.mark.system
def test_one_call_at_a_time_starts_a_server(alone: Warm) -> None:
    alone.describe()
    alone.end()
    with (alone.folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = alone.popen("describe")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert not alone.servers()
    out, _ = process.communicate("", timeout=PATIENCE_S)
    assert json.loads(out)["parent"] == alone.servers()[0].pid


@pytest.mark.system
def test_calls_that_start_a_server_at_the_same_time_start_one(alone: Warm) -> None:
    alone.describe()
    alone.end()
    processes = [alone.popen("describe") for _ in range(5)]
    results = [process.communicate("", timeout=PATIENCE_S) for process in processes]
    assert [err for _, err in results] == [""] * len(results), "none ran plain Flower"
    assert {json.loads(out)["parent"] for out, _ in results} == {alone.servers()[0].pid}


@pytest.mark.system
def test_where_a_server_ends_while_it_is_called_another_one_starts(alone: Warm) -> None:
    """The kernel resets the connection if the call was not read."""
    alone.describe()
    alone.end()
    (alone.folder / launcher.SOCKET).unlink()
    folder = os.open(alone.folder, os.O_PATH)
    path = f"/proc/self/fd/{folder}/{launcher.SOCKET}"  # a short one
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        process = alone.popen("describe")
        connection, _ = listener.accept()
        select.select([connection], [], [], PATIENCE_S)
    connection.close()
    os.close(folder)
    out, err = process.communicate("", timeout=PATIENCE_S)
    assert err == "", "plain Flower does not run"
    assert json.loads(out)["parent"] == alone.servers()[0].pid


def test_where_a_library_starts_a_thread_plain_flower_runs(tmp_path: Path) -> None:
    made = warm_in(tmp_path, ["threads"])
    assert made.describe()["parent"] == os.getpid()
    wait_for(lambda: not made.servers())
    done = made.run("describe")
    assert json.loads(done.stdout)["parent"] == os.getpid()
    assert re.fullmatch(r"fedcomp warm: a thread \(.*\) is started; plain Flower runs\n", done.stderr)
    assert not made.servers(), "it is not tried again"


def test_a_program_that_cannot_be_imported_is_plain_flowers(tmp_path: Path) -> None:
    made = warm_in(tmp_path, broken=True)
    wait_for((made.folder / launcher.UNFIT).exists)
    done = made.run("describe")
    assert done.returncode == 1, "as plain Flower ends with it"
    assert "fedcomp warm: OSError while the commands are imported: no such disk; plain Flower runs" in done.stderr


def test_an_owner_that_has_ended_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as owner:
        owner.wait()
    made = warm_in(tmp_path, owner=owner.pid)
    wait_for(lambda: not made.folder.exists())


def test_a_library_that_cannot_be_imported_is_left_to_the_app(tmp_path: Path) -> None:
    made = warm_in(tmp_path, ["raises", "no_such_library"])
    assert made.describe()["parent"] == made.servers()[0].pid
    made.end()


def test_where_a_library_of_the_app_starts_a_thread_plain_flower_runs(alone: Warm) -> None:
    report = json.dumps({"bundle": "app", "modules": ["threads"]})
    assert alone.run("report", str(alone.folder), report).returncode == 0
    wait_for((alone.folder / launcher.UNFIT).exists)
    done = alone.run("describe")
    assert json.loads(done.stdout)["parent"] == os.getpid()
    assert done.stderr.endswith("is started by a library that the app imports; plain Flower runs\n")


@pytest.mark.system
@pytest.mark.parametrize(
    "reports",
    [
        ["{", "[]", "{}", '{"bundle": 1, "modules": 2}'],
        ['{"bundle": "a", "modules": [1, ["x"], "no.such"]}'],  # of an app: another one would have another server
    ],
)
def test_a_report_that_the_app_has_written_ends_no_server(alone: Warm, reports: list[str]) -> None:
    before = alone.describe()["parent"]
    for report in reports:
        assert alone.run("report", str(alone.folder), report).returncode == 0
        assert alone.describe()["parent"] == before, report


CALL = {"command": ["probe"], "folder": "/", "umask": 0, "environment": {}}

NO_CALLS = [
    b"\xff",
    b"{",
    b"[]",
    b"null",
    b"{}",
    *(json.dumps({**CALL, name: 7.5}).encode() for name in ("command", "environment")),
    json.dumps({**CALL, "umask": "x"}).encode(),
    json.dumps({**CALL, "command": []}).encode(),
    json.dumps({**CALL, "environment": {"PYTHONPATH": None}}).encode(),
    json.dumps(CALL).encode(),  # without the files
]


def test_what_is_no_call_of_a_launcher_is_hung_up_on(shared: Warm) -> None:
    before = shared.describe()["parent"]
    for text in NO_CALLS:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(shared.folder / launcher.SOCKET))
            client.send(text)
            client.settimeout(PATIENCE_S)
            assert client.recv(1) == b"", text
    assert shared.describe()["parent"] == before


def answered(made: Warm, command: Sequence[str], user: int) -> bool:
    """Return whether the server forks a process for a call that is complete, by a user."""
    environment = psutil.Process(made.servers()[0].pid).environ()
    del environment[launcher.ROOM]
    call = json.dumps({**CALL, "command": command, "environment": environment}).encode()
    if (child := os.fork()) == 0:
        os.chdir(made.folder)
        os.setuid(user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(launcher.SOCKET)
            socket.send_fds(client, [call], [0, 1, 2, 0])
            os._exit(len(client.recv(1)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_other_programs_are_not_run(alone: Warm) -> None:
    alone.describe()
    assert answered(alone, ["probe", "exit", "0"], os.geteuid())
    assert not answered(alone, ["sh", "-c", "true"], os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_hung_up_on(alone: Warm) -> None:
    """Even where the folder were open to all."""
    alone.describe()
    alone.folder.chmod(0o777)
    (alone.folder / launcher.SOCKET).chmod(0o777)
    assert [answered(alone, ["probe", "exit", "0"], user) for user in (65534, 0)] == [False, True]


def test_a_launcher_that_ends_before_the_command_begins_runs_nothing(shared: Warm, tmp_path: Path) -> None:
    environment = psutil.Process(shared.describe()["parent"]).environ()
    del environment[launcher.ROOM]
    call = {**CALL, "command": ["probe", "describe"], "environment": environment}
    begin, begins = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, (tmp_path / "out").open("w+") as out:
        client.connect(str(shared.folder / launcher.SOCKET))
        socket.send_fds(client, [json.dumps(call).encode()], [0, out.fileno(), out.fileno(), begin])
        _, [process], _, _ = socket.recv_fds(client, 1, 1)
        os.close(begins)
        select.select([process], [], [], PATIENCE_S)
        out.seek(0)
        assert out.read() == ""
    os.close(begin)
    os.close(process)


def test_an_environment_that_does_not_fit_into_a_message_gets_plain_flower(shared: Warm) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(3)}
    done = shared.run("describe", env={**shared.environment, **large})
    assert json.loads(done.stdout)["parent"] == os.getpid()
    assert re.fullmatch("fedcomp warm: .*; plain Flower runs\n", done.stderr)


def test_an_app_that_installs_its_libraries_gets_plain_flower(shared: Warm) -> None:
    assert shared.describe(launcher.INSTALLS)["parent"] == os.getpid()


def test_the_server_belongs_to_its_user_alone_and_ends_with_its_owner(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as owner:
        made = warm_in(tmp_path, owner=owner.pid)
        made.describe()
        assert made.folder.stat().st_mode & 0o777 == 0o700
        [server] = made.servers()
        assert not server.net_connections("inet")
        owner.kill()
        server.wait(PATIENCE_S)
    assert not made.folder.exists()


def test_launchers_are_compiled_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr("sys.pycache_prefix", str(cache))
    made = warm_in(tmp_path)
    assert made.describe()["parent"] == made.servers()[0].pid
    assert list(cache.rglob("socket.*.pyc"))
    made.end()


def test_long_folders_hold_a_socket(tmp_path: Path) -> None:
    made = warm_in(tmp_path / ("long" * 40))
    assert made.describe()["parent"] == made.servers()[0].pid
    made.end()


@pytest.mark.system
def test_torch_draws_new_numbers_and_has_no_cuda_before_the_fork(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = warm_in(tmp_path, ("numpy", "torch"))
    first, second = (json.loads(made.run("torch").stdout) for _ in range(2))
    assert first["preloaded"]
    assert first["random"] != second["random"]
    assert not first["cuda"]
    made.end()
