"""The app's own defaults, which several rooms test with."""

import gc
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """Leave everything that exists before the first test out of garbage collection.

    Flower's Bulyan calls `gc.collect` for each reply; with 12,000 test cases in memory, a call takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def config() -> dict[str, object]:
    """The run config of `pyproject.toml`."""
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return loaded
