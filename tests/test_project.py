"""The files for contributors and for the host of the repository name what exists."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def _read(path: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((ROOT / path).read_text())
    return content


def test_the_hooks_run_the_pinned_ruff() -> None:
    [ruff] = [each for each in _read(".pre-commit-config.yaml")["repos"] if each["repo"].endswith("/ruff-pre-commit")]
    assert {hook["id"] for hook in ruff["hooks"]} == {"ruff-check", "ruff-format"}
    assert f"\nruff=={ruff['rev'].removeprefix('v')}\n" in (ROOT / "constraints.txt").read_text()


def test_the_hooks_check_every_file_but_data() -> None:
    exclude = re.compile(_read(".pre-commit-config.yaml")["exclude"])
    assert [
        path for path in (ROOT / "tests" / "golden").rglob("*.py") if exclude.search(str(path.relative_to(ROOT)))
    ] == []
    for data in ("tests/golden/delta.frame", "tests/golden/plain.message", "docs/results/sonnets/results.csv"):
        assert (ROOT / data).exists()
        assert exclude.search(data)


def test_the_workflow_tests_every_python_that_the_metadata_names() -> None:
    jobs = _read(".github/workflows/ci.yml")["jobs"]
    [whole] = [
        step["with"]["python-version"] for step in jobs["all"]["steps"] if "setup-python" in step.get("uses", "")
    ]
    assert f"\nPYTHON ?= python{whole}\n" in (ROOT / "Makefile").read_text()
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert [whole, *jobs["core"]["strategy"]["matrix"]["python"]] == named


def test_every_command_of_the_workflow_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    steps = [step for job in _read(".github/workflows/ci.yml")["jobs"].values() for step in job["steps"]]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    commands = [step["run"].split(maxsplit=1) for step in steps if "run" in step]
    assert len(commands) == 5
    for program, *arguments in commands:
        if program == "make":
            [(target, setting)] = re.findall(r"^([\w-]+)(?: (\w+)=.*)?$", arguments[0])
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert not setting or re.search(rf"^{setting} \?= ", makefile, re.MULTILINE)
        else:
            program = arguments[0].rpartition(" ")[2] if program == "sudo" else program
            assert os.access(ROOT / program, os.X_OK)


@pytest.mark.system
def test_a_sample_of_cases_and_the_nightly_ones_are_all_cases(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_cases.py").write_text(
        """import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(10))
def test_a_few(case): ...

@pytest.mark.every_case
@pytest.mark.parametrize("case", range(3))
def test_all(case): ...

def test_whole(): ...
"""
    )
    collect = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        str(tmp_path),
        "--collect-only",
        "-q",
    ]
    found = []
    for options in (["-m", "not nightly"], ["-m", "nightly"], ["-m", "not nightly", "--cases", "2"]):
        done = subprocess.run([*collect, *options], capture_output=True, text=True, cwd=tmp_path, check=True)
        found.append(set(re.findall(r"::(test_\S+)", done.stdout)))
    whole = {"test_all[0]", "test_all[1]", "test_all[2]", "test_whole"}
    assert found[0] == {"test_a_few[1]", "test_a_few[5]", "test_a_few[8]"} | whole
    assert found[1] == {f"test_a_few[{case}]" for case in range(10)} - found[0]
    assert found[2] == {"test_a_few[1]", "test_a_few[8]"} | whole
