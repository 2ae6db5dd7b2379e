"""The launcher behind `make demo`: what it makes of settings and lines, and whole runs of it as a user would start them."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.lines import Filter
from deploy.run_config import LaunchError, parse_config, run_config, to_toml

ROOT = Path(__file__).resolve().parents[2]

Config = dict[str, object]


def test_settings_are_toml_values_or_bare_texts() -> None:
    assert parse_config(["a=1 b=0.5 c=true d='x y' e=stc(density=0.02)", 'f="g=h"']) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "x y",
        "e": "stc(density=0.02)",
        "f": "g=h",
    }


def test_a_text_that_is_no_setting_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"'rounds' is no setting; write settings as key=value"):
        parse_config(["a=1 rounds"])


def test_paths_become_absolute_and_all_nodes_are_waited_for(config: Config) -> None:
    changed = run_config(["data-dir=some/where"], config, 7)
    assert changed["data-dir"] == str(Path.cwd() / "some/where")
    assert changed["runs-dir"] == str(Path.cwd() / "runs")
    assert changed["min-nodes"] == 7
    assert run_config(["min-nodes=3"], config, 7)["min-nodes"] == 3


def test_a_wrong_setting_is_refused_before_anything_starts(config: Config) -> None:
    with pytest.raises(LaunchError, match="num-rounds is 0; a whole number"):
        run_config(["num-rounds=0"], config, 7)


def test_what_is_written_for_flower_reads_back_the_same() -> None:
    config: Config = {"a": 1, "b": 0.5, "c": False, "d": 'quo"te \\ é', "e": 1e-05}
    assert parse_config(["a=1"]) == {"a": 1}
    assert parse_toml(to_toml(config)) == config


def parse_toml(text: str) -> Config:
    import tomllib

    return tomllib.loads(text)


def test_the_runs_own_lines_warnings_and_errors_are_shown_and_the_rest_is_not() -> None:
    lines = [
        "\x1b[92mINFO \x1b[0m:      [ROUND 1/3]",
        "round 1/3  accuracy 50.0%",
        "\x1b[93mWARNING \x1b[0m:   something is odd",
        "\x1b[91mERROR \x1b[0m:     something is wrong",
        "2026-01-01 10:00:00,123\tINFO worker.py:1 -- Started a local Ray instance.",
    ]
    shown = Filter(verbose=False)
    assert [kept for line in lines for kept in shown.show(line)] == lines[1:4]
    everything = Filter(verbose=True)
    assert [kept for line in lines for kept in everything.show(line)] == lines


def test_the_traceback_of_a_refused_setting_is_left_out_and_that_of_a_crash_is_not() -> None:
    head = [
        "ERROR :     Simulation raised an exception",
        "Traceback (most recent call last):",
        '  File "app.py", line 1',
    ]
    for last, expected in (("server.settings.SettingsError: seed is -1", 0), ("RuntimeError: all is lost", 4)):
        shown = Filter(verbose=False)
        kept = [text for line in [*head, last] for text in shown.show(line)]
        assert len(kept) == expected


def test_nodes_that_fail_alike_say_it_once() -> None:
    shown = Filter(verbose=False)
    lines = [f"ERROR :     ray::Actor.run() (pid={pid}, actor_id=ab{pid})" for pid in (1, 2, 3)]
    assert [kept for line in lines for kept in shown.show(line)] == lines[:1]


def test_what_left_its_parent_and_its_session_is_stopped_too() -> None:
    script = """
import subprocess
from deploy.processes import adopt_orphans, descendants, process_table, stop
adopt_orphans()
shell = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & exit 0"], text=True)
shell.wait()
print(len(descendants(process_table())))
stop([shell])
print(len(descendants(process_table())))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["2", "0"], done.stderr


# ---- whole runs ------------------------------------------------------------------------------------------------------


class Launcher:
    """Starts the launcher in processes that carry a mark, so that any that stays behind is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "deploy" / "simulate.py"), *arguments],
            cwd=self.folder,
            env=os.environ | {"FEDCOMP_TEST_MARK": self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def left_behind(self) -> list[str]:
        """The command lines of living processes that carry the mark."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environ.read_bytes():
                    found.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """The launcher, and the proof that nothing of it is left."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc to see what is left behind")
    launcher = Launcher(tmp_path)
    yield launcher
    assert launcher.left_behind() == []


def test_a_run_from_start_to_end(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start("--nodes", "2", "-c", "num-rounds=1 fraction-train=1.0 model=logistic runs-dir=out")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    summary = json.loads((tmp_path / "out" / "digits-001" / "summary.json").read_text())
    assert summary["rounds"] == 1
    assert 0 < summary["uplink_bytes"] < summary["dense_uplink_bytes"]
    assert 0 < summary["downlink_bytes"] < summary["dense_downlink_bytes"]
    assert summary["settings"]["min-nodes"] == 2
    assert "round 1/1" in output
    assert "INFO" not in output


@pytest.mark.system
def test_a_dataset_that_is_not_there_ends_with_one_sentence_and_leaves_nothing(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = launcher.start("--nodes", "2", "-c", "dataset=mnist data-dir=empty")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert output.count("\n") == 1, output
    assert output.startswith("error: mnist: no train-images-idx3-ubyte")
    assert str(tmp_path / "empty") in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_a_run_that_is_interrupted_stops_all_it_started(launcher: Launcher) -> None:
    process = launcher.start("--nodes", "4", "-c", "num-rounds=100000 fraction-train=0.5")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round      2/"):
            break
    assert len(launcher.left_behind()) > 3
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
