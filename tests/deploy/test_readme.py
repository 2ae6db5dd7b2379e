"""The commands of deploy/README.md work, and the log lines that it explains are those of the log."""

import logging
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from flwr.app import Array, Context, Message, RecordDict

from clients.app import app as client_app
from deploy.run_config import parse_config
from fedcomp.flower import LocalGrid
from fedcomp.flower.local_grid import Fault
from server.app import app as server_app
from server.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "deploy" / "README.md").read_text()
UNIT = (ROOT / "deploy" / "systemd" / "fedcomp-supernode.service").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def lines(start: str) -> list[str]:
    """Return the commands that begin with `start`, without sudo and its options."""
    commands = [re.sub(r"^sudo (-u \w+ )?", "", line) for block in blocks("sh") for line in block.splitlines()]
    found = [line for line in commands if line.startswith(start)]
    assert found, f"no command in the README begins with {start!r}"
    return found


def defaults() -> dict[str, object]:
    app = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    return dict(app["config"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with links to the project's files, and with this interpreter as `.venv/bin/python`."""
    for name in ("datasets", "deploy", "fedcomp"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def type_in(commands: str, folder: Path) -> str:
    """Return the output of `commands` in a shell; all must succeed."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-eu", "-c", commands], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_the_commands_make_all_folders_that_the_containers_mount(place: Path) -> None:
    block = next(block for block in blocks("sh") if "docker compose" in block)
    *commands, compose = block.splitlines()
    assert compose.startswith("SITE=$PWD/site ")
    type_in("\n".join(commands), place)
    services = yaml.safe_load((ROOT / "deploy" / "compose.yml").read_text())["services"]
    sources = {mount["source"] for service in services.values() for mount in service["volumes"]}
    paths = [Path(re.sub(r"\$\{SITE[^}]*\}", str(place / "site"), source)) for source in sources]
    assert len(paths) > 10
    assert all(path.exists() for path in paths)
    assert (place / "site" / "node-2" / "data" / "digits.toml").exists()
    assert (place / "site" / "node-0" / "key" / "node.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.system
def test_the_commands_make_keys_and_samples(place: Path) -> None:
    np.savez(place / "samples.npz", x=np.zeros((5, 1, 8, 8), np.float32), y=np.arange(5))
    (place / "digits.toml").write_text((ROOT / "datasets" / "digits.toml").read_text())
    (place / "keys.py").write_text((ROOT / "deploy" / "keys.py").read_text())
    for command in [
        *lines(".venv/bin/python -m deploy.keys server keys"),
        *lines("/opt/fedcomp/bin/python keys.py node"),
        *lines("cp digits.toml"),
        *lines("/opt/fedcomp/bin/python -m fedcomp.data pack"),
        *lines("/opt/fedcomp/bin/python -m fedcomp.data check"),
        *lines(".venv/bin/python -m fedcomp.data share datasets/digits.toml --partition"),
    ]:
        here = command.replace("/opt/fedcomp/bin/python", ".venv/bin/python")
        type_in(here.replace("/etc/", f"{place}/etc/").replace("/srv/", f"{place}/srv/"), place)
    assert {path.name for path in (place / "keys").iterdir()} == {"ca.key", "ca.pem", "server.key", "server.pem"}
    assert {path.name for path in (place / "etc" / "fedcomp" / "keys").iterdir()} == {"node.key", "node.pub"}
    assert {path.name for path in (place / "srv" / "fedcomp").iterdir()} == {"digits.npz", "digits.toml"}
    assert len(list((place / "shares").iterdir())) == 10


def test_the_wheel_has_the_name_in_the_commands_and_the_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"fedcomp-[\w.]+-py3-none-any\.whl", README))
    assert named == {f"fedcomp-{project['version']}-py3-none-any.whl"}
    assert set(re.findall(r"whl\[(\w+)\]", README)) == {"client", "app"} <= project["optional-dependencies"].keys()


@pytest.mark.system
@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [line for line in lines("flwr ") if " run " not in line])
def test_flower_has_the_commands(command: str) -> None:
    _, group, name, *arguments = shlex.split(command)
    program = Path(sys.executable).parent / "flwr"
    env = {key: value for key, value in os.environ.items() if key not in ("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS")}
    help_page = subprocess.run(
        [program, group, name, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=env | {"COLUMNS": "120"},
    )
    assert help_page.returncode == 0
    assert len(re.findall(r"^│ \*? +\w+ +(?:TEXT|INTEGER|FILE|PATH|\[\w+\])", help_page.stdout, re.MULTILINE)) >= len(
        arguments
    )


def test_the_settings_of_the_run_are_valid() -> None:
    [command] = lines("flwr run")
    arguments = shlex.split(command)
    config = parse_config([arguments[arguments.index("-c") + 1]])
    settings = Settings.from_config(defaults() | config)
    assert settings.partition == "own()"
    for text in re.findall(r"`(\w+=[\w\"(]\S*)`", README):
        Settings.from_config(defaults() | {"run-name": "field"} | parse_config([text]))


def test_files_are_where_the_unit_looks_for_them() -> None:
    node = tomllib.loads(next(block for block in blocks("toml") if "state-dir" in block))
    assert node == {"data-dir": "/srv/fedcomp", "state-dir": "/var/lib/fedcomp/state"}
    assert "StateDirectory=fedcomp\n" in UNIT
    for path in ("/etc/fedcomp/supernode.env", "/etc/fedcomp/node.toml", "/etc/fedcomp/keys", "/opt/fedcomp/bin"):
        assert path in UNIT
        assert path in README
    for path in set(re.findall(r"`((?:deploy|datasets)/[\w./-]+)`", README)):
        assert (ROOT / path).exists(), path


class Troubled(LocalGrid):
    """A grid in which node 2 sends garbage."""

    def send_and_receive(self, messages: object, *, timeout: float | None = None) -> list[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))  # type: ignore[arg-type]
        for reply in replies:
            if reply.metadata.src_node_id == 2 and reply.has_content():
                for record in reply.content.array_records.values():
                    for name, array in dict(record).items():
                        record[name] = Array(array.dtype, array.shape, array.stype, b"garb" + array.data[4:])
        return replies


@pytest.mark.usefixtures("undrawn")
def test_the_log_has_the_lines_that_the_page_explains(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = defaults() | {"num-rounds": 5, "min-nodes": 5, "fraction-train": 1.0, "runs-dir": str(tmp_path)}
    config |= {"node-timeout": 0.0, "model": "logistic"}
    grid = Troubled(client_app, 5, config)  # type: ignore[arg-type]
    grid.order(4, Fault.DELIVER_TWICE, Fault.LOSE_REPLY, Fault.DELIVER_TWICE, Fault.FORGET)
    with caplog.at_level(logging.INFO, "flwr"):
        server_app(grid, Context(1, 0, {}, RecordDict(), config))  # type: ignore[arg-type]
    logged = {re.sub(r"\d+", "N", record.getMessage().strip()) for record in caplog.records}
    explained = [re.sub(r"\d+", "N", line) for line in re.findall(r"^\| `(fedcomp: .*?)` \|", README, re.MULTILINE)]
    assert len(explained) == 5
    assert [line for line in explained if line not in logged] == []
