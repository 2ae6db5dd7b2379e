"""Third parties register methods of their own."""

import pytest

import fedcomp
from fedcomp.entropy import SparseValues
from fedcomp.memory import LinearFeedback
from fedcomp.methods import METHODS, Parts
from fedcomp.quantize import TopK


def test_a_taken_name_is_refused_and_the_method_that_has_it_stays() -> None:
    before = METHODS["stc"]

    def stc(density: float = 0.01) -> Parts:
        return TopK(density), SparseValues(), LinearFeedback()

    with pytest.raises(ValueError, match="'stc' .*arXiv:1903.02891"):
        fedcomp.register("Author et al., 2026")(stc)
    assert METHODS["stc"] is before is fedcomp.stc


def test_a_decorator_without_the_paper_is_refused() -> None:
    def no_paper(density: float = 0.01) -> Parts:
        return TopK(density), SparseValues(), LinearFeedback()

    with pytest.raises(ValueError, match="no_paper.*a text is needed"):
        fedcomp.register(no_paper)  # type: ignore[arg-type]


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="gzip"):
        METHODS["gzip"]
    assert "gzip" not in METHODS
    assert METHODS.get("gzip") is None
