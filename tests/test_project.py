"""The files for contributors and for the host of the repository name what exists."""

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
    for data in ("tests/golden/delta.frame", "tests/golden/ef21_run/checkpoint", "docs/results/sonnets/results.csv"):
        assert (ROOT / data).exists()
        assert exclude.search(data)
