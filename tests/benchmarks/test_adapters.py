"""Adapters of large models have the shapes of their configurations and the values of a real training."""

from functools import cache

import numpy as np
import pytest

from benchmarks import adapters, small_adapter
from benchmarks.adapters import SHAPES, AdapterRun, Enlarged, Recorded, measured
from benchmarks.small_adapter import SmallTraining

PLAN = AdapterRun(nodes=4, per_round=2, rounds=2)
LINKS = "crosspolytope(bits=0.15) stc(density=0.02)"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_adapter, "BASE_STEPS", 5)
    monkeypatch.setattr(small_adapter, "STEPS", 2)
    loss = SmallTraining.loss

    def of_some(small: SmallTraining) -> float:
        small.test = small.test[:300]
        return loss(small)

    monkeypatch.setattr(SmallTraining, "loss", of_some)


@cache
def of_one_node() -> SmallTraining:
    """The training of one node, which no test changes; each that calls this uses `quick`."""
    return SmallTraining(nodes=1)


@pytest.mark.parametrize(
    ("model", "entries"),
    [
        ("0.5B", 24 * 32 * (896 + 896 + 896 + 128)),
        ("3B", 28 * 32 * (3072 + 3072 + 3072 + 1024)),
        ("7B", 32 * 32 * (4096 + 4096 + 4096 + 1024)),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_large_adapter_has_the_shapes_of_its_model_and_the_rows_and_columns_of_the_small_one(
    model: str, entries: int
) -> None:
    small = of_one_node().adapter
    enlarge = Enlarged(SHAPES[model])
    large = enlarge(small)
    assert sum(array.size for array in large.values()) == entries
    assert large["layers.0.query.a"].shape == (32, SHAPES[model].hidden)
    assert large["layers.1.value.b"].shape == (SHAPES[model].values, 32)
    columns = {column.tobytes() for column in small["blocks.1.query.a"].T}
    assert {column.tobytes() for column in large["layers.1.query.a"].T} <= columns
    twice = enlarge({name: 2 * array for name, array in small.items()})
    assert all(np.array_equal(twice[name], 2 * array) for name, array in large.items()), "the same rows each time"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("nodes", [1, 20, 50])
def test_the_sonnets_are_divided_among_any_number_of_nodes(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    all_windows = len(of_one_node().parts[0])
    monkeypatch.setattr(small_adapter, "BASE_STEPS", 0)
    parts = of_one_node().parts if nodes == 1 else SmallTraining(nodes).parts
    sizes = [len(part) for part in parts]
    assert len(parts) == nodes
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == all_windows


@pytest.mark.usefixtures("quick")
def test_the_nodes_of_a_large_model_send_what_those_of_the_small_one_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(PLAN, ["dense() dense()", LINKS])
    assert len(recorded.updates) == PLAN.rounds * PLAN.per_round
    assert list(recorded.losses) == ["before", "plain Flower", "dense() dense()", LINKS]
    assert recorded.losses["plain Flower"] == pytest.approx(recorded.losses["dense() dense()"], rel=1e-4)
    assert recorded.losses["plain Flower"] < recorded.losses["before"]
    monkeypatch.setitem(adapters.SHAPES, "tiny", adapters.ModelShape(2, 16, 16, 8))
    enlarge = Enlarged(SHAPES["tiny"])
    large, _ = PLAN.run(enlarge(recorded.first), recorded.replay(enlarge), "")
    for name, array in enlarge(recorded.last).items():
        np.testing.assert_allclose(large[name], array, atol=1e-6)
    assert any(not np.array_equal(array, enlarge(recorded.first)[name]) for name, array in large.items())
    row = measured("tiny", PLAN, LINKS, recorded)
    assert row["entries"] == f"{2 * 32 * (16 + 16 + 16 + 8):,}"
    assert float(str(row["smaller"]).removesuffix("x")) > 20
