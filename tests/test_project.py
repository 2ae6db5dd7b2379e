"""The files for contributors and for the host of the repository name what exists."""

import os
import re
from pathlib import Path
from typing import Any

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
    assert len(commands) == 2
    for program, *arguments in commands:
        if program == "make":
            [(target, setting)] = re.findall(r"^([\w-]+) (\w+)=", arguments[0])
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert re.search(rf"^{setting} \?= ", makefile, re.MULTILINE)
        else:
            assert os.access(ROOT / program, os.X_OK)
