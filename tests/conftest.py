"""The app's own defaults, which several rooms test with."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def config() -> dict[str, object]:
    """The run config of `pyproject.toml`."""
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return loaded
