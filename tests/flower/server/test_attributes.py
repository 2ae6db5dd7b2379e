"""The settings and methods of the inner strategy are reached through the wrapper, as before it was wrapped."""

import copy

import pytest
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy, LocalGrid
from tests.flower.toy import app, model


class Saving(FedAvg):
    """FedAvg with a method and a setting of its own, and one whose name the wrapper has, too."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.folder = ""
        self.seed = 7

    def set_save_path(self, folder: str) -> None:
        self.folder = folder


def test_a_setting_that_is_changed_after_wrapping_counts() -> None:
    strategy = CompressedStrategy(Saving())
    strategy.fraction_train = 0.5
    assert strategy.inner.fraction_train == strategy.fraction_train == 0.5  # type: ignore[attr-defined]
    strategy.start(LocalGrid(app(), 8), model(), num_rounds=1)
    assert len(strategy.nodes) == 4


def test_methods_of_the_inner_strategy_can_be_called() -> None:
    strategy = CompressedStrategy(Saving())
    strategy.set_save_path("best")
    assert strategy.folder == "best"
    with pytest.raises(AttributeError, match="'CompressedStrategy' object has no attribute 'set_safe_path'"):
        strategy.set_safe_path("best")


def test_an_error_of_a_property_is_told_as_it_is() -> None:
    class Own(CompressedStrategy):
        """A wrapper with a property that the inner strategy has, too."""

        @property
        def folder(self) -> str:
            return self.nowhere  # type: ignore[no-any-return]

    with pytest.raises(AttributeError, match="'Own' object has no attribute 'nowhere'"):
        _ = Own(Saving()).folder


def test_what_both_have_is_that_of_the_wrapper_and_new_attributes_stay_there() -> None:
    strategy = CompressedStrategy(Saving(), seed=3)
    strategy.seed = 4
    strategy.note = "mine"
    assert (strategy.seed, strategy.inner.seed) == (4, 7)  # type: ignore[attr-defined]
    assert not hasattr(strategy.inner, "note")


def test_a_copy_has_the_settings() -> None:
    strategy = CompressedStrategy(Saving())
    strategy.set_save_path("best")
    again = copy.deepcopy(strategy)
    again.folder = "other"
    assert (again.inner.folder, strategy.inner.folder) == ("other", "best")  # type: ignore[attr-defined]
