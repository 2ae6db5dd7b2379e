"""Compressors by name: `parse` and `str` are inverse, and every setting is checked."""

import inspect
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.methods import METHODS, dense, parse, stc


def test_text_and_constructor_give_equal_compressors() -> None:
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
def test_the_text_of_a_compressor_parses_back_to_it(compressor: fedcomp.Compressor, text: str) -> None:
    assert str(compressor) == text
    assert parse(text) == compressor
    assert str(parse(text)) == text
    assert hash(parse(text)) == hash(compressor)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_text_of_every_method_parses_back_and_it_has_a_docstring(name: str) -> None:
    compressor = METHODS[name]()
    assert compressor.name == name
    assert parse(str(compressor)) == compressor
    assert METHODS[name].__doc__


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_setting_of_a_method_is_checked_by_one_of_its_parts(name: str) -> None:
    for setting in inspect.signature(METHODS[name]).parameters:
        with pytest.raises(ValueError, match=f"^{setting} is 'nonsense'; "):
            parse(f"{name}({setting}='nonsense')")


def test_compressors_differ_if_a_setting_differs() -> None:
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
        ("gzip()", "'gzip'.*: .*dense, .*stc"),
        (
            "stc(sparsity=0.1)",
            "'stc.sparsity=0.1.' .*'sparsity'.*: density, order",
        ),
        ("dense(0.1)", "'dense.0.1.' .*: none"),
        ("stc(density=0)", "density is 0"),
        ("stc(density=2.5)", "density is 2.5"),
        ("stc(density='0.1')", "density is '0.1'"),
        ("stc(density=1e999)", "density is inf"),
        ("stc(order='paper')", "order is 'paper'; it is one of 'split', 'interleaved'"),
        ("stc(order=[])", r"order is \[\]"),
        ("stc(density=1/400)", "1/400"),
    ],
)
def test_an_unknown_or_impossible_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_the_mapping_of_methods_is_read_only() -> None:
    with pytest.raises(TypeError):
        METHODS["mine"] = dense  # type: ignore[index]
