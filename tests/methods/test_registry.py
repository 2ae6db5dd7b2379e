"""Third parties register methods of their own."""

import inspect

import pytest

import fedcomp
from fedcomp.entropy import SparseValues
from fedcomp.memory import LinearFeedback
from fedcomp.methods import METHODS, Parts
from fedcomp.methods.registry import MethodRegistry
from fedcomp.quantize import TopK


def mine(density: float = 0.01, feedback: bool = True) -> Parts:
    """Return top-k under another name."""
    return TopK(density), SparseValues(), LinearFeedback()


def test_a_registered_method_is_in_the_mapping_at_once() -> None:
    registry = MethodRegistry()
    view = iter(registry)
    constructor = registry.register("Author et al., 2026")(mine)
    assert registry["mine"] is constructor
    assert list(registry) == ["mine"]
    assert len(registry) == 1
    assert list(view) == [], "an iterator that has started does not change"


def test_the_text_has_the_first_setting_and_those_that_differ_from_their_defaults() -> None:
    constructor = MethodRegistry().register("Author et al., 2026")(mine)
    assert str(constructor()) == "mine(density=0.01)"
    assert str(constructor(0.5, feedback=True)) == "mine(density=0.5)"
    assert str(constructor(feedback=False)) == "mine(density=0.01, feedback=False)"


def test_the_constructor_shows_the_settings_and_returns_a_compressor() -> None:
    constructor = MethodRegistry().register("Author et al., 2026")(mine)
    assert str(inspect.signature(constructor)) == (
        "(density: float = 0.01, feedback: bool = True) -> fedcomp.compressor.Compressor"
    )
    assert constructor.__doc__ == mine.__doc__


def test_the_paper_and_the_directions_are_kept() -> None:
    registry = MethodRegistry()
    registry.register("Author et al., 2026", downlink=False)(mine)
    about = registry.about("mine")
    assert (about.paper, about.uplink, about.downlink) == ("Author et al., 2026", True, False)


def test_a_taken_name_is_refused_and_the_method_that_has_it_stays() -> None:
    before = METHODS["stc"]

    def stc(density: float = 0.01) -> Parts:
        return TopK(density), SparseValues(), LinearFeedback()

    with pytest.raises(ValueError, match="'stc' .*arXiv:1903.02891"):
        fedcomp.register("Author et al., 2026")(stc)
    assert METHODS["stc"] is before is fedcomp.stc


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="gzip"):
        METHODS["gzip"]
    assert "gzip" not in METHODS
    assert METHODS.get("gzip") is None
