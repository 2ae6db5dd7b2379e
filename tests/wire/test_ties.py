"""Tied tensors: one tensor under several names, in the vector once."""

import json

import numpy as np
import pytest

from fedcomp.errors import CorruptError
from fedcomp.wire import check_ties, layout_of, parse_layout, probable_ties

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4)).astype(np.float32)
ARRAYS = {
    "in.weight": W,
    "bias": np.zeros(4, np.float32),
    "out.weight": W.copy(),
    "steps": np.array(3),
    "again.weight": W.copy(),
}
TIED = [("again.weight", "in.weight", "out.weight")]


def test_the_text_names_the_first_tensor_of_a_group_in_the_order_of_the_model() -> None:
    layout = layout_of(ARRAYS, tied=TIED)
    assert layout.text == (
        b'[["in.weight","float32",[3,4],"compressed"],["bias","float32",[4],"compressed"],'
        b'["out.weight","float32",[3,4],"tied:in.weight"],["steps","int64",[],"exact"],'
        b'["again.weight","float32",[3,4],"tied:in.weight"]]'
    )
    assert layout.n == 16
    assert parse_layout(layout.text) == layout
    assert layout_of(ARRAYS).n == 40


def test_flattened_and_unflattened_tied_tensors_hold_the_values_of_the_first() -> None:
    layout = layout_of(ARRAYS, tied=TIED)
    vector, exact = layout.flatten(ARRAYS)
    np.testing.assert_array_equal(vector, np.append(W.ravel(), np.zeros(4)))
    for back in (layout.unflatten(vector, exact), layout.unflatten_float64(vector, {"steps": np.array(3)})):
        assert list(back) == list(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(back[name], array)
        assert not np.shares_memory(back["in.weight"], back["out.weight"])


def test_tied_tensors_with_other_values_are_refused() -> None:
    layout = layout_of(ARRAYS, tied=TIED)
    check_ties(layout.tensors, ARRAYS)
    other = W.copy()
    other[2, 3] += 1e-6
    with pytest.raises(ValueError, match=r"'in\.weight' and 'again\.weight'"):
        check_ties(layout.tensors, ARRAYS | {"again.weight": other})


@pytest.mark.parametrize(
    ("tied", "reason"),
    [
        ([("in.weight", "out.wieght")], "'out.wieght'"),
        ([("in.weight",)], "two names or more"),
        (("in.weight", "out.weight"), "two names or more"),
        ([("in.weight", "in.weight")], "two names or more"),
        ([("in.weight", "bias")], "'in.weight', 'bias'. cannot be tied"),
        ([("steps", "steps2")], "'steps', 'steps2'. cannot be tied"),
        ([("in.weight", "out.weight"), ("again.weight", "out.weight")], "'out.weight' is in two groups"),
    ],
)
def test_names_that_cannot_be_tied_are_refused(tied: list[tuple[str, ...]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        layout_of(ARRAYS | {"steps2": np.array(3)}, tied=tied)


def test_a_local_tensor_cannot_be_tied() -> None:
    with pytest.raises(ValueError, match="cannot be tied"):
        layout_of(ARRAYS, ["out.*"], tied=TIED)


@pytest.mark.parametrize(
    "row",
    [
        ["b", "float32", [4], "tied:"],
        ["b", "float32", [4], "tied:b"],
        ["b", "float32", [4], "tied:c"],
        ["b", "float32", [4], "tied:steps"],
        ["b", "float32", [4], "tied:other"],
        ["b", "float32", [5], "tied:a"],
        ["b", "float64", [4], "tied:a"],
        ["b", "float32", [4], "tied"],
        ["b", "float32", [4], ["tied:a"]],
    ],
)
def test_a_layout_with_an_impossible_tie_is_refused(row: list[object]) -> None:
    rows = [["a", "float32", [4], "compressed"], ["other", "float32", [4], "tied:a"], ["steps", "int64", [4], "exact"]]
    good = json.dumps([*rows, ["b", "float32", [4], "tied:a"]], separators=(",", ":")).encode()
    assert parse_layout(good).n == 4
    with pytest.raises(CorruptError):
        parse_layout(json.dumps([*rows, row], separators=(",", ":")).encode())


def test_probable_ties_hold_equal_values_that_are_not_constant() -> None:
    arrays = ARRAYS | {
        "bias2": np.zeros(4, np.float32),
        "half": W.astype(np.float16),
        "turned": np.ascontiguousarray(W.T),
        "steps2": np.array(3),
        "empty": np.zeros((0, 2), np.float32),
        "empty2": np.zeros((0, 2), np.float32),
    }
    names = ("in.weight", "out.weight", "again.weight")
    assert probable_ties(layout_of(arrays).tensors, arrays) == [names]
    assert probable_ties(layout_of(arrays, tied=[names]).tensors, arrays) == []
