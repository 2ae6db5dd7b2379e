"""Images and the compose file, as far as they can be checked without a container engine."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from flwr.common.config import parse_config_args

from tests.deploy.flags import flags_in, flags_of, value_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NODES = ("node-0", "node-1", "node-2")
PROGRAMS = {"superlink": "flower-superlink", "supernode": "flower-supernode"}

Service = dict[str, Any]


def instructions() -> list[tuple[str, str, str]]:
    """Return (stage, instruction, rest) of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    stage, found = "", []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, rest = line.split(maxsplit=1)
        if name == "FROM":
            stage = rest.split(" AS ")[1]
        found.append((stage, name, rest))
    return found


def of_stage(stage: str, name: str) -> list[str]:
    """Return the arguments of instruction `name` in the base stages of `stage`, and then in `stage` itself."""
    base = next(rest for of, kind, rest in instructions() if (of, kind) == (stage, "FROM")).split(" AS ")[0]
    stages = {of for of, _, _ in instructions()}
    before = of_stage(base, name) if base in stages else []
    return before + [rest for of, kind, rest in instructions() if (of, kind) == (stage, name)]


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """The services of the compose file, merged as YAML merges them."""
    loaded: dict[str, dict[str, Service]] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return loaded["services"]


def command_line(services: dict[str, Service], name: str) -> list[str]:
    """Return the whole command line of a service: the entry point of its image, and the arguments in the compose file."""
    entry: list[str] = json.loads(of_stage(services[name]["build"]["target"], "ENTRYPOINT")[-1])
    if name in NODES:
        assert entry[:2] == ["fedcomp", "warm"]
        assert all("exec" in mount.split(":")[1].split(",") for mount in services[name]["tmpfs"]), "launchers lie there"
        entry = entry[2:]
    return entry + list(services[name]["command"])


def test_the_three_nodes_differ_only_in_their_folders(services: dict[str, Service]) -> None:
    assert set(services) == {"superlink", *NODES}
    first = json.dumps(services["node-0"])
    assert all(json.dumps(services[name]) == first.replace("node-0", name) for name in NODES)


@pytest.mark.system
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["superlink", *NODES])
def test_the_program_has_every_flag(services: dict[str, Service], name: str) -> None:
    program, *arguments = command_line(services, name)
    assert program == PROGRAMS[services[name]["build"]["target"]]
    assert flags_in(arguments)
    assert flags_in(arguments) <= flags_of(program)


def test_tls_and_authentication_are_on(services: dict[str, Service]) -> None:
    superlink = flags_in(command_line(services, "superlink"))
    assert {"--enable-supernode-auth", "--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile"} <= superlink
    for name in NODES:
        assert {"--root-certificates", "--auth-supernode-private-key"} <= flags_in(command_line(services, name))
    assert "--insecure" not in superlink.union(*(flags_in(command_line(services, name)) for name in NODES))


@pytest.mark.parametrize("name", ["superlink", *NODES])
def test_every_file_in_a_command_is_mounted_and_no_other_key(services: dict[str, Service], name: str) -> None:
    mounts = {mount["target"]: mount for mount in services[name]["volumes"]}
    arguments = command_line(services, name)
    named = {argument.partition("=")[2] for argument in arguments if "=/keys/" in argument}
    assert named == {target for target in mounts if target.startswith("/keys/")}
    assert all(mounts[target]["read_only"] for target in named)
    assert all(mount["bind"] == {"create_host_path": False} for mount in mounts.values())
    assert not any("ca.key" in mount["source"] for mount in mounts.values())
    assert {mount["target"] for mount in mounts.values() if not mount.get("read_only")} == {"/var/lib/fedcomp"}


def test_a_node_has_its_data_and_state_in_mounted_folders(services: dict[str, Service]) -> None:
    config = parse_config_args([value_of("--node-config", command_line(services, "node-0"))])
    assert config == {"data-dir": "/data", "state-dir": "/var/lib/fedcomp/state"}
    assert value_of("--database", command_line(services, "superlink")).startswith("/var/lib/fedcomp/")


@pytest.mark.parametrize("name", ["superlink", *NODES])
def test_a_container_has_no_privileges(services: dict[str, Service], name: str) -> None:
    service = services[name]
    assert service["user"].startswith("${USER_IDS:?")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert not service.keys() & {"privileged", "cap_add", "devices", "network_mode", "pid"}


def test_ports_are_published_on_loopback_by_default(services: dict[str, Service]) -> None:
    assert services["superlink"]["ports"] == ["${LISTEN:-127.0.0.1}:8000:8000"]
    assert value_of("--port", command_line(services, "superlink")) == "8000"
    assert not any("ports" in services[name] for name in NODES)
    assert all(value_of("--host", command_line(services, name)) == "127.0.0.1" for name in NODES)
    assert all(value_of("--superlink", command_line(services, name)) == "superlink:8000" for name in NODES)


@pytest.mark.parametrize("stage", PROGRAMS)
def test_an_image_checks_the_health_endpoint_of_its_program(stage: str) -> None:
    entry: list[str] = json.loads(of_stage(stage, "ENTRYPOINT")[-1])
    check: list[str] = json.loads(of_stage(stage, "HEALTHCHECK")[-1].partition("CMD ")[2])
    script, address = check[1:]
    assert value_of("--health-server-address", entry) == address
    assert address.startswith("127.0.0.1:")
    assert f"deploy/health.py {script}" in of_stage(stage, "COPY")


@pytest.mark.parametrize("stage", PROGRAMS)
def test_an_image_runs_as_its_own_user_on_a_pinned_base(stage: str) -> None:
    assert of_stage(stage, "USER") == ["fedcomp"]
    bases = {rest.split(" AS ")[0] for _, name, rest in instructions() if name == "FROM" and rest.startswith("python:")}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases.pop())


def test_copied_files_exist_and_are_not_ignored() -> None:
    not_ignored = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {
        source.removeprefix("./")
        for _, name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert all((ROOT / path).exists() for path in copied)
    assert copied == not_ignored


def test_images_install_existing_extras() -> None:
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    installed = {
        stage: rest.split()[1]
        for stage, name, rest in instructions()
        if (name, rest.split()[0]) == ("RUN", "./image_install")
    }
    assert installed == {"build-supernode": "client", "build-supernode-numpy": "flower", "build-superlink": "app"}
    assert set(installed.values()) <= extras
    for image in ("supernode", "supernode-numpy", "superlink"):
        assert f"--from=build-{image} /opt/fedcomp /opt/fedcomp" in of_stage(image, "COPY")


def test_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yml"), "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SITE": str(tmp_path), "USER_IDS": "1000:1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
