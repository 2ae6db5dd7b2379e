"""The Helm chart: `.ci/images` lints and renders it with Helm's own code, and the objects have what the compose file has."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.run_config import ROOT
from tests.deploy.flags import flags_in, flags_of

pytestmark = pytest.mark.skipif("FEDCOMP_IMAGES" not in os.environ, reason="`.ci/images` renders it and runs this")
PARTS = {"superlink": "superlink", "node": "node-0"}
"""The names of the chart, and of the compose file."""


@pytest.fixture(scope="module")
def pods() -> dict[str, dict[str, Any]]:
    """The pods of the release `field`, by the names of their parts."""
    objects = yaml.safe_load_all((Path(os.environ["FEDCOMP_IMAGES"]) / "chart.yaml").read_text())
    sets = [found for found in objects if found and found["kind"] == "StatefulSet"]
    return {found["metadata"]["name"].removeprefix("field-"): found["spec"]["template"]["spec"] for found in sets}


@pytest.mark.parametrize("part", PARTS)
def test_the_command_is_that_of_the_compose_file(pods: dict[str, dict[str, Any]], part: str) -> None:
    services = yaml.safe_load((ROOT / "deploy" / "compose.yml").read_text())["services"]
    expected = [argument.replace("=superlink:", "=field-superlink:") for argument in services[PARTS[part]]["command"]]
    [container] = pods[part]["containers"]
    assert container["args"] == expected
    assert flags_in(expected) <= flags_of("flower-superlink" if part == "superlink" else "flower-supernode")


@pytest.mark.parametrize("part", PARTS)
def test_a_pod_has_no_privileges(pods: dict[str, dict[str, Any]], part: str) -> None:
    pod = pods[part]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


def test_a_node_sees_its_own_key_alone(pods: dict[str, dict[str, Any]]) -> None:
    [container] = pods["node"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/keys/node.key"]["subPathExpr"] == "$(POD).key"
    assert "/keys" not in mounts
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {"/var/lib/fedcomp", "/tmp"}  # noqa: S108
