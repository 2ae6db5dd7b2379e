"""The app's own defaults, which several rooms test with."""

import gc
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """Leave everything that exists before the tests of a file out of garbage collection: test cases, imports, caches.

    Flower's Bulyan calls `gc.collect` for each reply; with a million objects in memory, a call takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def config() -> dict[str, object]:
    """The run config of `pyproject.toml`."""
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return loaded
