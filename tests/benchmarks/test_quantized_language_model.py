"""The table of quantized language models, in small."""

from pathlib import Path

import pytest

from benchmarks import quantized_language_model
from fedcomp.data import Dataset, Split, load, read_card


def small() -> Dataset:
    """Return the first samples of the sonnets."""
    dataset = load(read_card("sonnets", Path(__file__).parents[2] / "datasets"))
    train, test = (
        Split(split.x[:100], split.y[:100], {name: column[:100] for name, column in split.groups.items()})
        for split in (dataset.train, dataset.test)
    )
    return Dataset(dataset.card, train, test)


def test_each_training_has_a_row_and_that_in_float32_one_for_each_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_language_model, "BATCH_SIZE", 4)
    found = list(quantized_language_model.rows(small(), ("", "admm('ternary')"), steps=2, seed=0))
    roundings = [f"float32, then {rounding}" for rounding in quantized_language_model.ROUNDINGS]
    assert [row["training"] for row in found] == ["float32", *roundings, "admm('ternary')"]
    sizes = {row["training"]: int(str(row["bytes"]).replace(",", "")) for row in found}
    assert sizes["float32"] == 4 * 92_443
    assert sizes["float32, then admm('binary', rho=0)"] < 17_000 < sizes["admm('ternary')"] < 28_000
    assert all(10 < float(str(row["perplexity"])) < 70 for row in found), "two steps from chance, 59"
