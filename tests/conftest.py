"""The app's own defaults, which several rooms test with."""

import gc
import random
import tomllib
from collections import defaultdict
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: nearly all that is made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that the other versions of Flower and Python are tested with."""
    parser.addoption("--cases", type=int, help="run at most this many cases of each test, evenly spread")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases of a test that its mark `sample` leaves to `make nightly`, and leave out those that `--cases` does."""
    by_test = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        by_test[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for cases in by_test.values():
        if sample := cases[0].get_closest_marker("sample"):
            for item in set(cases) - _spread(cases, sample.args[0]):
                item.add_marker("nightly")
        most = config.getoption("cases")
        if most and not cases[0].get_closest_marker("every_case"):
            left_out |= set(cases) - _spread([item for item in cases if not item.get_closest_marker("nightly")], most)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _spread(cases: list[pytest.Item], count: int) -> set[pytest.Item]:
    """Return `count` of `cases`, evenly spread; all of them if they are fewer."""
    return {cases[(2 * place + 1) * len(cases) // (2 * count)] for place in range(count)} if cases else set()


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """Leave everything that exists before the tests of a file out of garbage collection: test cases, imports, caches.

    Flower's Bulyan calls `gc.collect` for each reply; with a million objects in memory, a call takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Let the global generators start anew for each test, so that it draws the same alone as after other tests."""
    random.seed(0)
    np.random.seed(0)
    if find_spec("torch"):
        import torch

        torch.manual_seed(0)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an empty picture where a run writes one: drawing it takes longer than the few rounds of most tests."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **settings: None)


@pytest.fixture
def config() -> dict[str, object]:
    """The run config of `pyproject.toml`."""
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return loaded
