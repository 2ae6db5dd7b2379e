"""The app's own defaults, which several rooms test with."""

import gc
import tomllib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test that its mark `sample` leaves to `make nightly`: all but some that are evenly spread."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("sample"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_test in cases.values():
        count = next(of_test[0].iter_markers("sample")).args[0]
        kept = {(2 * place + 1) * len(of_test) // (2 * count) for place in range(count)}
        for place, item in enumerate(of_test):
            if place not in kept:
                item.add_marker("nightly")


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """Leave everything that exists before the tests of a file out of garbage collection: test cases, imports, caches.

    Flower's Bulyan calls `gc.collect` for each reply; with a million objects in memory, a call takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an empty picture where a run writes one: drawing it takes longer than the few rounds of most tests."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, **settings: None)


@pytest.fixture
def config() -> dict[str, object]:
    """The run config of `pyproject.toml`."""
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return loaded
