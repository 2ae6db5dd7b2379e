"""The version, the files that are distributed, their metadata, and what is said where an extra is missing."""

import json
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import fedcomp
from fedcomp.__main__ import main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist."""
    pytest.importorskip("hatchling", reason="hatchling, of the group `dev`, builds the files")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    return folder


def metadata(dist: Path) -> Message:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        return message_from_bytes(wheel.read(f"fedcomp-{fedcomp.__version__}.dist-info/METADATA"))


def test_the_version_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROJECT["version"] == fedcomp.__version__
    first = re.search(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert fedcomp.__version__ in first[1]
    wheels = {}
    for path in (
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.yml"),
    ):
        if found := re.findall(r"fedcomp-([\d.]+)-py3-none-any.whl", path.read_text(encoding="utf-8")):
            wheels[path.relative_to(ROOT).as_posix()] = set(found)
    assert {"README.md", "deploy/README.md", "deploy/ansible/nodes.yml", "docs/start/quickstart.md"} <= wheels.keys()
    assert [path for path, versions in wheels.items() if versions != {fedcomp.__version__}] == []
    chart = (ROOT / "deploy" / "helm" / "Chart.yaml").read_text()
    assert set(re.findall(r"^(?:version|appVersion): (.*)$", chart, re.MULTILINE)) == {fedcomp.__version__}
    assert f"\nversion: {fedcomp.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fedcomp {fedcomp.__version__}\n"


def test_the_metadata_names_the_licence_and_the_extras_of_users(dist: Path) -> None:
    fields = metadata(dist)
    assert (fields["License-Expression"], fields["License"]) == ("Apache-2.0", None)
    assert fields.get_all("License-File") == ["LICENSE"]
    assert fields.get_all("Provides-Extra") == ["app", "client", "flower", "gossip"]
    assert "flwr<1.43,>=1.40; extra == 'flower'" in (fields.get_all("Requires-Dist") or [])


def test_a_wheel_says_from_which_commit_it_was_built(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        found = json.loads(wheel.read("fedcomp/provenance.json"))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found["commit"] == commit.strip()
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert found["modified"] is bool(status)
    assert found["built with"]["python"] == platform.python_version()
    assert {path.suffix for path in dist.iterdir()} == {".whl", ".gz"}, "nothing else is left"


def test_the_wheel_has_the_command_and_flowers_bundle_sees_no_scripts(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        text = wheel.read(f"fedcomp-{fedcomp.__version__}.dist-info/entry_points.txt").decode()
    assert text.split() == ["[console_scripts]", "fedcomp", "=", "fedcomp.__main__:main"]
    assert "scripts" not in PROJECT


def test_the_page_of_an_index_has_no_relative_picture_or_link(dist: Path) -> None:
    text = str(metadata(dist).get_payload())
    assert "fedcomp" in text
    assert re.findall(r"\]\((?!https://)", text) == []
    assert "[Flower](https://flower.ai)" in text
    assert "*Figure: Bytes sent" in text


def test_a_wheel_of_the_sdist_has_the_metadata_of_the_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    assert (source / "docs" / "start" / "quickstart.md").exists()
    assert all(
        (source / path).exists() for path in re.findall(r"!\[.*?\]\((.*?)\)", (source / "README.md").read_text())
    )
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path), "--target", "wheel"]
    subprocess.run(command, cwd=source, capture_output=True, check=True, timeout=120)
    assert metadata(tmp_path).as_bytes() == metadata(dist).as_bytes()
    provenance = []
    for folder in (dist, tmp_path):
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            provenance.append(wheel.read("fedcomp/provenance.json"))
    assert provenance[0] == provenance[1]


IMPORTS = """
import importlib, sys
_, missing, *modules = sys.argv
sys.modules[missing] = None
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("missing", "extra", "modules"),
    [
        ("flwr", "flower", ["fedcomp.flower"]),
        ("filelock", "flower", ["fedcomp.flower"]),
        ("grpc_reflection", "gossip", ["fedcomp.gossip.peers"]),
        ("torch", "client", ["fedcomp.split", "fedcomp.tasks", "fedcomp.training"]),
    ],
)
def test_a_missing_library_is_one_sentence_with_the_extra_that_installs_it(
    missing: str, extra: str, modules: list[str]
) -> None:
    command = [sys.executable, "-c", IMPORTS, missing, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for module, line in zip(modules, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{module} needs ")
        assert missing in line
        assert line.endswith(f"in fedcomp's folder, pip install '.[{extra}]' installs it")


def test_no_text_tells_to_install_fedcomp_from_an_index() -> None:
    """Fedcomp is on none: such a command fails today, and tomorrow installs what anyone has put there under the name."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {path: (ROOT / path).read_bytes().decode(errors="ignore") for path in tracked.splitlines()}
    from_index = re.compile(r"(pip install|uv add|uv pip install)[^\n]*[\s'\"]fedcomp(\[[\w,]+\])?[\s'\"`]")
    assert [path for path, text in texts.items() if from_index.search(text)] == []


def test_the_command_that_uses_a_dataset_says_what_installs_its_library() -> None:
    program = "import sys; sys.modules['sklearn'] = None; from fedcomp.data.__main__ import main; sys.exit(main())"
    share = ["share", "datasets/digits.toml", "--nodes", "3", "--out", "never-made"]
    command = [sys.executable, "-c", program, *share]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"data: fedcomp\.data needs sklearn, .* pip install '\.\[app\]' installs it\n", done.stderr)


def test_a_library_that_flower_itself_misses_is_named_as_it_is() -> None:
    program = "import sys; sys.modules['google.protobuf'] = None; import fedcomp.flower"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "google.protobuf" in done.stderr.splitlines()[-1]
