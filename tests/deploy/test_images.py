"""Containers of the images, started as the compose file says: what they may do, training, a node that is killed.

`.ci/images` builds the images and runs these tests, in namespaces of their own.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from deploy.control import COMPLETED, Control
from deploy.keys import make_node, make_server
from deploy.monitor.snapshot import read_run
from deploy.program import wait_until
from deploy.run_config import ROOT
from fedcomp.data.__main__ import main as data_command
from tests.deploy.live_federation import app_of

pytestmark = [
    pytest.mark.skipif("FEDCOMP_IMAGES" not in os.environ, reason="`.ci/images` builds the images and runs this"),
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]
USER = 10001
NODES = ("node-0", "node-1")
PATIENCE_S = 300.0
SETTINGS = {
    "partition": "own()",
    "min-nodes": len(NODES),
    "fraction-train": 1.0,
    "uplink": "crosspolytope(bits=0.15)",
    "downlink": "balanced(stc(density=0.02))",
}


def podman(*arguments: str) -> str:
    """Return what a podman command prints."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def healthy(name: str) -> bool:
    """Return whether the health check of the image succeeds in the container."""
    command = ["podman", "healthcheck", "run", name]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def processes(name: str) -> list[psutil.Process]:
    """Return the container's first process and all others."""
    first = psutil.Process(int(podman("inspect", "--format", "{{.State.Pid}}", name)))
    return [first, *first.children(recursive=True)]


class Containers:
    """The services of the compose file as containers, with their files in `site`; limits of cgroups are left out."""

    def __init__(self, site: Path) -> None:
        values = {"SITE": str(site), "USER_IDS": f"{USER}:{USER}", "LISTEN": "127.0.0.1"}
        text = (ROOT / "deploy" / "compose.yml").read_text()
        text = re.sub(r"\$\{(\w+)[^}]*\}", lambda found: values[found[1]], text)
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
        self.site = site
        self.control = Control(site / "operator", "")

    def start(self, name: str, image: str = "", config: str = "") -> None:
        """Start a service, and return when it is healthy; `config` is added to a node's config."""
        service = self.services[name]
        options = ["--network=federation", f"--name={name}", f"--user={service['user']}", "--init"]
        options += [f"--restart={service['restart']}"] + ["--read-only"] * service["read_only"]
        options += [f"--tmpfs={mount}" for mount in service["tmpfs"]]
        options += [f"--cap-drop={capability}" for capability in service["cap_drop"]]
        options += [f"--security-opt={option.removesuffix(':true')}" for option in service["security_opt"]]
        options += [f"--publish={port}" for port in service.get("ports", ())]
        options += [f"--env={key}={value}" for key, value in service.get("environment", {}).items()]
        for mount in service["volumes"]:
            options.append(f"--volume={mount['source']}:{mount['target']}:{'ro' if mount.get('read_only') else 'rw'}")
        command = [argument + config * argument.startswith("--node-config") for argument in service["command"]]
        podman("run", "--detach", *options, image or service["image"], *command)
        assert wait_until(lambda: healthy(name), PATIENCE_S), podman("logs", name)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """A SuperLink and two nodes that are connected."""
    site = tmp_path_factory.mktemp("site")
    make_server(site / "keys", ["superlink"])
    card = str(ROOT / "datasets" / "digits.toml")
    data_command(["share", card, "--nodes", "3", "--out", str(site / "shares")])
    (site / "superlink").mkdir()
    (site / "data").mkdir()
    for number in range(3):
        folder = site / f"node-{number}"
        make_node(folder / "key")
        (folder / "state").mkdir()
        (site / "shares" / folder.name).rename(folder / "data")
    for path in site.rglob("*"):
        shutil.chown(path, USER, USER)
    podman("network", "create", "federation")
    found = Containers(site)
    found.services["superlink"]["environment"] = {"ASSIGNING_BOOK": "/var/lib/fedcomp/book.json"}
    found.start("superlink")
    found.control.connect("127.0.0.1:8000", site / "keys" / "ca.pem")
    found.control.register([site / f"node-{number}" / "key" / "node.pub" for number in range(3)])
    for number, name in enumerate(NODES):
        found.start(name, config=f" partition-id={number}")
    yield found
    podman("rm", "--all", "--force", "--time=10")
    podman("network", "rm", "federation")


def until_the_log_has(text: str, log: Callable[[], str]) -> None:
    assert wait_until(lambda: text in log(), PATIENCE_S), log()


def test_three_rounds_are_compressed_in_both_directions(containers: Containers) -> None:
    settings = SETTINGS | {"num-rounds": 3, "run-name": "three"}
    run = containers.control.run(ROOT, settings, containers.site / "started")
    assert run.wait(PATIENCE_S) == COMPLETED, run.log()
    found = read_run(containers.site / "superlink" / "runs" / "three")
    assert len(found.nodes) == len(NODES)
    assert {node.heard for node in found.nodes} == {3}
    for traffic in (node.traffic for node in found.nodes):
        print(f"up {traffic.dense_uplink_bytes} -> {traffic.uplink_bytes} bytes, ", end="")
        print(f"down {traffic.dense_downlink_bytes} -> {traffic.downlink_bytes}")
        assert 0 < 10 * traffic.uplink_bytes < traffic.dense_uplink_bytes
        assert 0 < 10 * traffic.downlink_bytes < traffic.dense_downlink_bytes


@pytest.mark.parametrize("name", NODES)
def test_a_node_forks_a_process_for_each_message(containers: Containers, name: str) -> None:
    assert any("fedcomp.warm.server" in process.cmdline() for process in processes(name))
    command = ["podman", "logs", name]
    log = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    assert "Start `flwr-clientapp` process" in log
    assert "plain Flower runs" not in log


@pytest.mark.parametrize("name", ["superlink", *NODES])
def test_no_process_has_privileges(containers: Containers, name: str) -> None:
    found = processes(name)
    assert len(found) > 1
    for process in found:
        assert set(process.uids()) == set(process.gids()) == {USER}
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.findall(r"^Cap\w+:\s*(\w+)$", status, re.MULTILINE) == ["0" * 16] * 5
        assert "NoNewPrivs:\t1\n" in status
        assert "Seccomp:\t2\n" in status


@pytest.mark.parametrize("name", ["superlink", *NODES])
def test_only_the_volume_and_tmp_are_written(containers: Containers, name: str) -> None:
    mounts = [line.split() for line in Path(f"/proc/{processes(name)[0].pid}/mountinfo").read_text().splitlines()]
    options = {mount[4]: mount[5].split(",") for mount in mounts}
    assert "ro" in options["/"]
    assert "rw" in options["/var/lib/fedcomp"]
    assert {path for path in options if path.startswith(("/keys", "/data")) and "rw" in options[path]} == set()
    with pytest.raises(AssertionError, match="Read-only file system"):
        podman("exec", "--user=0", name, "touch", "/opt/fedcomp/file")
    changed = podman("diff", name).splitlines()  # podman itself makes the targets of its mounts
    assert [line for line in changed if not re.fullmatch(r"[AC] /(etc|run|keys|data).*", line)] == []


@pytest.mark.parametrize("name", NODES)
def test_the_state_of_a_node_is_in_its_volume(containers: Containers, name: str) -> None:
    assert [path for path in (containers.site / name / "state" / "state").rglob("*") if path.is_file()]
    assert list((containers.site / name / "state" / "pycache").iterdir())


def test_a_node_that_was_killed_continues_in_the_same_run(containers: Containers) -> None:
    settings = SETTINGS | {"num-rounds": 1000, "run-name": "killed", "round-timeout": 20.0}
    run = containers.control.run(ROOT, settings, containers.site / "started")
    try:
        until_the_log_has("[ROUND 3/1000]", run.log)
        processes("node-1")[0].kill()
        until_the_log_has("no answer in time", run.log)
        until_the_log_has("answering again", run.log)
    finally:
        run.stop()
    assert int(podman("inspect", "--format", "{{.RestartCount}}", "node-1")) > 0
    found = read_run(containers.site / "superlink" / "runs" / "killed")
    assert "dropped" not in run.log()
    assert {node.traffic.refused for node in found.nodes} == {0}
    assert healthy("node-1")


def test_a_node_without_torch_trains_with_numpy(containers: Containers, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No module named 'torch'"):
        podman("run", "--rm", "--entrypoint=python", "fedcomp-supernode-numpy", "-c", "import torch")
    containers.start("node-2", image="fedcomp-supernode-numpy", config=" partition-id=2")
    app = app_of(Path(__file__).parent / "assigning_app", "app:server_app", "app:client_app", tmp_path / "app")
    run = containers.control.run(app, {}, containers.site / "started")
    assert run.wait(PATIENCE_S) == COMPLETED, run.log()
    assert json.loads((containers.site / "superlink" / "book.json").read_text())["refused"] == 0


@pytest.mark.parametrize(("image", "most"), [("supernode", 700e6), ("supernode-numpy", 200e6), ("superlink", 1300e6)])
def test_an_image_is_small(image: str, most: float) -> None:
    base = re.findall(r"^FROM (python:\S+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)[0]
    whole, below = (int(podman("inspect", "--format", "{{.Size}}", name)) for name in (f"fedcomp-{image}", base))
    print(f"fedcomp-{image}: {(whole - below) / 1e6:.0f} MB on a base of {below / 1e6:.0f} MB")
    assert whole - below < most
