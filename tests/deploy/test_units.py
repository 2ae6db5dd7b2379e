"""The systemd units: systemd accepts them, and their command lines have flags that Flower has."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import flwr
import pytest

from deploy.environment import environment
from tests.deploy.flags import flags_in, flags_of, value_of

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
NAMES = ("fedcomp-superlink", "fedcomp-supernode")
EXPOSURE = 20
"""Tenths on systemd's scale from 0 to 10; it calls 4 and more "medium", and a service with no sandbox has 9.6."""


def settings(name: str) -> dict[str, list[str]]:
    """Return the values of each setting of a unit, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (UNITS / f"{name}.service").read_text())
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def command(name: str) -> list[str]:
    """Return the command line of Flower's program in a unit."""
    words = shlex.split(settings(name)["ExecStart"][0])
    return words[2:] if words[:2] == ["/opt/fedcomp/bin/fedcomp", "warm"] else words


@pytest.fixture(params=NAMES)
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose program is in this environment."""
    path = tmp_path / f"{request.param}.service"
    path.write_text((UNITS / path.name).read_text().replace("/opt/fedcomp/bin/", f"{sys.prefix}/bin/"))
    return path


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_systemd_accepts_the_unit(installed: Path) -> None:
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(installed))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_would_find_a_mistake(installed: Path) -> None:
    installed.write_text(installed.read_text().replace("ProtectSystem=strict", "ProtectSystem=strikt"))
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(installed))
    assert "strikt" in done.stdout + done.stderr


def test_systemd_measures_a_tight_sandbox(installed: Path) -> None:
    version = int(re.findall(r"\d+", analyze("--version").stdout)[0])
    if version < 250:
        pytest.skip(f"systemd {version} cannot analyse units offline")
    done = analyze("security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", str(installed))
    assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
def test_the_program_has_every_flag(name: str) -> None:
    program, *arguments = command(name)
    assert program.startswith("/opt/fedcomp/bin/flower-")
    assert flags_in(arguments)
    assert flags_in(arguments) <= flags_of(Path(program).name)


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_in_a_command_are_loaded_as_credentials(name: str) -> None:
    keys = set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", settings(name)["ExecStart"][0]))
    loaded = dict(value.split(":") for value in settings(name)["LoadCredential"])
    assert keys == set(loaded)
    assert all(path == f"/etc/fedcomp/keys/{key}" for key, path in loaded.items())
    assert "ca.key" not in loaded


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_restarts_and_writes_only_its_own_folder(name: str) -> None:
    unit = settings(name)
    assert unit["Restart"] == ["always"]
    assert unit["User"] == ["fedcomp"]
    assert unit["ProtectSystem"] == ["strict"]
    [folder] = unit["StateDirectory"]
    assert unit["WorkingDirectory"] == [f"%S/{folder}"]
    assert {"MemoryMax", "TasksMax"} <= unit.keys()


def test_units_listen_on_loopback_by_default() -> None:
    assert "LISTEN=127.0.0.1 PORT=8000" in settings("fedcomp-superlink")["Environment"]
    assert value_of("--host", command("fedcomp-superlink")) == "${LISTEN}"
    assert value_of("--host", command("fedcomp-supernode")) == "127.0.0.1"
    for name in NAMES:
        assert value_of("--health-server-address", command(name)).startswith("127.0.0.1:")


def test_flower_knows_the_variables_that_are_set_for_it(tmp_path: Path) -> None:
    images = (UNITS.parent / "Dockerfile").read_text()
    places = [images, *(" ".join(settings(name)["Environment"]) for name in NAMES), " ".join(environment(tmp_path))]
    source = "".join(path.read_text() for path in Path(flwr.__file__).parent.rglob("*.py"))
    for text in places:
        names = set(re.findall(r"\bFLWR_\w+", text))
        assert "FLWR_SUPEREXEC_TASK_POLL_INTERVAL" in names, "a message is noticed after a fifth of a second"
        assert all(f'"{name}"' in source for name in names)
