"""A `CompressedStrategy` that starts again continues from its model: the log says so, and warns of another first model."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.errors import DivergedError
from fedcomp.flower import Checkpoint, CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import app, arrays_of, model


def strategy_of(path: Path | None = None) -> CompressedStrategy:
    return CompressedStrategy(FedAvg(fraction_evaluate=0.0), checkpoint=path and Checkpoint(path))


def test_a_second_training_with_the_same_object_is_warned_of(flower_log: pytest.LogCaptureFixture) -> None:
    """As in a sweep over learning rates, where plain Flower starts each time from the model that is passed."""

    def warnings(arrays: ArrayRecord) -> list[str]:
        flower_log.clear()
        strategy.start(grid, arrays, num_rounds=1)
        texts = [each.getMessage() for each in flower_log.records if each.levelno == logging.WARNING]
        return [text for text in texts if "a new training needs a new CompressedStrategy" in text]

    strategy, grid = strategy_of(), LocalGrid(app(), 2)
    assert warnings(model()) == []
    assert warnings(strategy.arrays) == [], "it continues, and says so"
    assert "continues from version 1" not in flower_log.text, "with its own object nobody expects anything else"
    assert warnings(to_record(arrays_of(strategy.arrays))) == []
    assert "continues from version 2" in flower_log.text
    assert len(warnings(model())) == 1


def test_after_load_the_first_model_is_only_a_form(tmp_path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server"
    first = strategy_of(path)
    first.start(LocalGrid(app(), 2), model(), num_rounds=1)
    for strategy in (strategy_of(path), first):
        strategy.load(path)
        strategy.start(LocalGrid(app(), 2), model(), num_rounds=1)
    assert "a new training needs" not in flower_log.text


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"layer.bias": np.zeros(3, np.float32)},
            "'layer.bias' is float32 (3,) compressed instead of float32 (25,) compressed",
        ),
        ({"more": np.zeros(2)}, "'more' is float64 (2,) compressed instead of absent"),
        (
            {name: np.zeros(1, np.float16) for name in ("layer.weight", "layer.bias", "a", "b", "c")},
            (
                "'layer.weight' is float16 (1,) compressed instead of float32 (40, 25) compressed, "
                "'layer.bias' is float16 (1,) compressed instead of float32 (25,) compressed, "
                "'a' is float16 (1,) compressed instead of absent and 2 more"
            ),
        ),
    ],
)
def test_after_load_another_model_is_refused_with_the_tensors_that_differ(
    change: dict[str, Any], found: str, tmp_path: Path
) -> None:
    strategy_of(tmp_path / "server").start(LocalGrid(app(), 2), model(), num_rounds=1)
    strategy = strategy_of()
    strategy.load(tmp_path / "server")
    with pytest.raises(ValueError, match=f"another model than the published one: {re.escape(found)}$"):
        strategy.start(LocalGrid(app(), 2), to_record(arrays_of(model()) | change))
    reordered = to_record(dict(reversed(arrays_of(model()).items())))
    with pytest.raises(ValueError, match="published one: the tensors are the same, in another order$"):
        strategy.start(LocalGrid(app(), 2), reordered)


def test_a_second_training_through_a_wrapper_is_refused_with_what_helps() -> None:
    """A user's strategy around this one passes its steps on; the loop is that of Flower."""
    strategy, grid = strategy_of(), LocalGrid(app(), 2)
    Strategy.start(strategy, grid, model(), num_rounds=2)
    Strategy.start(strategy, grid, strategy.arrays, num_rounds=1)
    assert strategy.version == 3
    with pytest.raises(ValueError, match="not the published model.*a new training with a new CompressedStrategy"):
        Strategy.start(strategy, grid, model(), num_rounds=1)


def test_a_mask_with_infinity_is_refused_with_what_helps() -> None:
    given = arrays_of(model())
    for value, hint in ((-np.inf, r"; a mask .* need not be sent: local=\['mask'\]"), (np.inf, ""), (np.nan, "")):
        masked = to_record({**given, "mask": np.full(3, value, np.float32)})
        with pytest.raises(
            DivergedError, match=rf"'mask' holds NaN or infinity; only finite values can be sent{hint}$"
        ):
            strategy_of().start(LocalGrid(app(), 2), masked, num_rounds=1)
