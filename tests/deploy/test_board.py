"""A board without torch and fedcomp: Ansible installs a node, and both units train under systemd.

`.ci/images` makes the board, a Debian with systemd and sshd in a folder, and runs these tests in namespaces of their own.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from deploy.control import COMPLETED, Control
from deploy.health import serves
from deploy.keys import make_server
from deploy.monitor.snapshot import read_run
from deploy.program import wait_until
from deploy.run_config import ROOT
from fedcomp.data.__main__ import main as data_command

pytestmark = [
    pytest.mark.skipif("FEDCOMP_IMAGES" not in os.environ, reason="`.ci/images` makes a board and runs this"),
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]
WORK = Path(os.environ.get("FEDCOMP_IMAGES", "."))
"""With the folders `board`, `wheels`, and `tools`, the environment of Ansible."""
PATIENCE_S = 600.0
PIP = "--no-index --find-links /wheels"
UNITS = ("fedcomp-superlink", "fedcomp-supernode")


class Board:
    """The running board; `project` has the files of a project's folder that the playbook copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.key = folder / "id"
        self.root = WORK / "board"
        self.options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]

    def ssh(self, command: str) -> str:
        """Return what a command on the board prints."""
        line = ["ssh", "-i", str(self.key), *self.options, "root@127.0.0.1", command]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def play(self) -> dict[str, int]:
        """Run the playbook, and return the numbers of Ansible's recap."""
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": " ".join(self.options),
            "superlink": "127.0.0.1:8000",
            "authority": "keys/ca.pem",
            "cards": ["datasets/digits.toml"],
        }
        inventory = self.folder / "inventory.yml"
        inventory.write_text(yaml.safe_dump({"nodes": {"hosts": {"board": variables}}}))
        command = [str(WORK / "tools" / "bin" / "ansible-playbook"), "-i", str(inventory)]
        command += ["-e", f"project={self.project}", "-e", f"pip_arguments='{PIP}'"]
        command.append(str(ROOT / "deploy" / "ansible" / "nodes.yml"))
        environment = os.environ | {"PATH": f"{WORK}/tools/bin:{os.environ['PATH']}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        recap = done.stdout.strip().splitlines()[-1]
        print(recap)
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap)}


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    found = Board(tmp_path_factory.mktemp("board"))
    make_server(found.project / "keys")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", found.key], check=True)
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(found.project / "dist")]
    subprocess.run(wheel, cwd=ROOT, capture_output=True, check=True)
    for path in ("constraints.txt", "deploy/keys.py", f"deploy/systemd/{UNITS[1]}.service", "datasets/digits.toml"):
        (found.project / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, found.project / path)
    shares = found.folder / "shares"
    data_command(["share", str(ROOT / "datasets" / "digits.toml"), "--nodes", "2", "--out", str(shares)])
    (shares / "node-0").chmod(0o755)
    authorized = found.root / "root" / ".ssh" / "authorized_keys"
    authorized.parent.mkdir(mode=0o700, exist_ok=True)
    authorized.write_text(found.key.with_suffix(".pub").read_text())
    command = ["systemd-nspawn", "--boot", "--register=no", "--keep-unit", "--console=pipe", f"-D{found.root}"]
    command += [f"--bind-ro={WORK}/wheels:/wheels", f"--bind-ro={shares}/node-0:/srv/fedcomp"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as boot:
        try:
            assert wait_until(lambda: answers(22), 60)
            yield found
        finally:
            boot.kill()


def test_ansible_installs_a_node_and_then_changes_nothing(board: Board) -> None:
    first, second = board.play(), board.play()
    assert first["changed"] > 10
    assert second["changed"] == first["failed"] == second["failed"] == first["unreachable"] == 0
    assert board.ssh("systemctl is-enabled fedcomp-supernode") == "enabled"


def test_both_units_train(board: Board) -> None:
    """Both units of one board share its network: the SuperLink's has another health address here."""
    board.ssh(f'cd /usr/local/lib/fedcomp && /opt/fedcomp/bin/pip install {PIP} -c constraints.txt "$(ls *.whl)[app]"')
    unit = (ROOT / "deploy" / "systemd" / "fedcomp-superlink.service").read_text().replace(":9099", ":9199")
    (board.root / "etc" / "systemd" / "system" / "fedcomp-superlink.service").write_text(unit)
    for name in ("server.pem", "server.key"):
        shutil.copy(board.project / "keys" / name, board.root / "etc" / "fedcomp" / "keys")
    board.ssh("systemctl daemon-reload && systemctl start fedcomp-superlink")
    assert wait_until(lambda: serves("127.0.0.1:9199"), 60), board.ssh("journalctl -u fedcomp-superlink")
    control = Control(board.folder / "operator", "")
    control.connect("127.0.0.1:8000", board.project / "keys" / "ca.pem")
    control.register([board.project / "keys" / "board.pub"])
    settings = {"partition": "own()", "num-rounds": 3, "min-nodes": 1, "fraction-train": 1.0, "run-name": "board"}
    run = control.run(ROOT, settings | {"uplink": "stc(density=0.01)", "downlink": "stc(density=0.01)"}, board.folder)
    assert run.wait(PATIENCE_S) == COMPLETED, run.log() + board.ssh("journalctl -u fedcomp-supernode")
    [node] = read_run(board.root / "var" / "lib" / "fedcomp-superlink" / "runs" / "board").nodes
    assert 0 < 10 * node.traffic.uplink_bytes < node.traffic.dense_uplink_bytes
    assert 0 < 10 * node.traffic.downlink_bytes < node.traffic.dense_downlink_bytes
    assert serves("127.0.0.1:9099")
    assert any("fedcomp.warm.server" in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    log = board.ssh("journalctl -u fedcomp-supernode")
    assert "Start `flwr-clientapp` process" in log
    assert "plain Flower runs" not in log


@pytest.mark.parametrize("unit", UNITS)
def test_the_processes_of_a_unit_have_no_privileges(board: Board, unit: str) -> None:
    program = unit.replace("fedcomp", "flower")
    started = psutil.process_iter(["cmdline"])
    found = [process for process in started if any(program in word for word in process.info["cmdline"] or ())]
    assert found
    for process in found:
        assert 0 not in process.uids()
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.findall(r"^Cap\w+:\s*(\w+)$", status, re.MULTILINE) == ["0" * 16] * 5
        assert "NoNewPrivs:\t1\n" in status
        assert "Seccomp:\t2\n" in status
    print(board.ssh(f"systemd-analyze security --no-pager --threshold=20 {unit}").splitlines()[-1])


def test_a_unit_that_was_killed_starts_again(board: Board) -> None:
    restarts = int(board.ssh("systemctl show --value --property=NRestarts fedcomp-supernode"))
    board.ssh("systemctl kill --signal=KILL fedcomp-supernode")
    assert wait_until(lambda: not serves("127.0.0.1:9099"), 60)
    assert wait_until(lambda: serves("127.0.0.1:9099"), 120)
    assert int(board.ssh("systemctl show --value --property=NRestarts fedcomp-supernode")) > restarts
