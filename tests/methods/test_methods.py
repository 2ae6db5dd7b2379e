"""Compressors by name."""

from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.methods import METHODS, dense, parse, stc


def test_the_public_names_are_there() -> None:
    assert fedcomp.METHODS is METHODS
    assert set(METHODS) >= {"dense", "stc"}
    assert fedcomp.parse("stc(density=0.0025)") == fedcomp.stc(density=1 / 400) == fedcomp.stc()
    assert fedcomp.parse("dense") == fedcomp.dense()


@pytest.mark.parametrize(
    ("compressor", "text"),
    [
        (dense(), "dense()"),
        (stc(), "stc(density=0.0025)"),
        (stc(0.1), "stc(density=0.1)"),
        (stc(1e-7), "stc(density=1e-07)"),
        (stc(density=1 / 3, order="interleaved"), "stc(density=0.3333333333333333, order='interleaved')"),
        (stc(np.float64(0.1)), "stc(density=0.1)"),
    ],
)
def test_a_compressor_and_its_text_are_one(compressor: fedcomp.Compressor, text: str) -> None:
    assert str(compressor) == text
    assert parse(text) == compressor
    assert str(parse(text)) == text
    assert hash(parse(text)) == hash(compressor)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_text_and_a_docstring(name: str) -> None:
    compressor = METHODS[name]()
    assert compressor.name == name
    assert parse(str(compressor)) == compressor
    assert METHODS[name].__doc__


def test_settings_tell_compressors_apart() -> None:
    assert len({stc(0.1), stc(0.2), stc(0.1, order="interleaved"), dense(), stc(density=0.1)}) == 4


@pytest.mark.parametrize("text", [["stc()"], {}, None, b"stc()", 1, fedcomp.stc])
def test_anything_but_text_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=type(text).__name__):
        parse(text)


def test_an_unknown_name_of_100_kB_is_quoted_in_short() -> None:
    with pytest.raises(ValueError, match="unknown method") as caught:
        parse("x" * 100_000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gzip()", "unknown method 'gzip'; there are: .*dense, .*stc"),
        (
            "stc(sparsity=0.1)",
            "method 'stc.sparsity=0.1.' got an unexpected keyword argument 'sparsity'; the settings of stc are: density, order",
        ),
        ("dense(0.1)", "method 'dense.0.1.' too many positional arguments; the settings of dense are: none"),
        ("stc(density=0)", "density is 0; it is the fraction kept"),
        ("stc(density=2.5)", "density is 2.5; it is the fraction kept"),
        ("stc(density='0.1')", "density is '0.1'; it is the fraction kept"),
        ("stc(density=1e999)", "density is inf; it is the fraction kept"),
        ("stc(order='paper')", "order is 'paper'; it is one of 'split', 'interleaved'"),
        ("stc(order=[])", r"order is \[\]; it is one of"),
        ("stc(density=1/400)", "is not of the form"),
    ],
)
def test_no_setting_is_silently_ignored(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_the_mapping_of_methods_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError):
        METHODS["mine"] = dense  # type: ignore[index]
