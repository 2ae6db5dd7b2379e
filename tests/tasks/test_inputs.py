"""Model inputs from stored arrays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.data import Card, read_card
from fedcomp.tasks.inputs import input_shape, prepare

DIGITS = read_card("digits", Path(__file__).parents[2] / "datasets")


def card(**changes: Any) -> Card:
    """Return a card of 2x2 grey images with the given changes."""
    return replace(DIGITS, **({"shape": (1, 2, 2), "mean": (0.5,), "std": (0.25,)} | changes))


def test_bytes_are_scaled_and_normalised_by_hand() -> None:
    x = np.array([[[[0, 255], [51, 102]]]], np.uint8)  # 0, 1, 0.2, 0.4
    found = prepare(x, card(), "cpu")
    assert found.dtype == torch.float32
    assert found.tolist() == [[[[-2.0, 2.0], [pytest.approx(-1.2), pytest.approx(-0.4)]]]]
    floats = np.array([[[[0.5, 0.75], [1.0, 2.0]]]], np.float32)  # are not scaled
    assert prepare(floats, card(), "cpu").tolist() == [[[[0.0, 1.0], [2.0, 6.0]]]]


def test_the_resize_is_bilinear_by_hand() -> None:
    x = np.array([[[[0.0, 1.0], [0.0, 1.0]]]], np.float32)
    found = prepare(x, card(mean=(0.0,), std=(1.0,), resize=4), "cpu")
    assert found.tolist() == [[[[0.0, 0.25, 0.75, 1.0]] * 4]]


def test_each_channel_has_its_own_mean_and_std() -> None:
    x = np.ones((1, 2, 1, 1), np.float32)
    assert prepare(x, card(shape=(2, 1, 1), mean=(0, 0.5), std=(1, 0.25)), "cpu").flatten().tolist() == [1.0, 2.0]


def test_features_become_one_row() -> None:
    x = np.array([[0.5, 0.75, 1.0]], np.float32)
    features = card(shape=(3,))
    assert prepare(x, features, "cpu").tolist() == [[[[0.0, 1.0, 2.0]]]]
    assert input_shape(features) == (1, 1, 3)


def test_the_codes_of_characters_come_back() -> None:
    sonnets = read_card("sonnets", Path(__file__).parents[2] / "datasets")
    codes = np.arange(256, dtype=np.uint8).reshape(8, 1, 1, 32)
    assert np.array_equal(prepare(codes, sonnets, "cpu").round().numpy(), codes)
    assert input_shape(sonnets) == (1, 1, 32)


@pytest.mark.parametrize("resize", [None, 5, 1])
def test_the_shape_is_that_of_input_shape_and_the_source_does_not_change(resize: int | None) -> None:
    colour = card(shape=(3, 4, 6), mean=(0, 0, 0), std=(1, 1, 1), resize=resize)
    x = np.random.default_rng(0).integers(0, 256, (7, 3, 4, 6), dtype=np.uint8)
    before = x.copy()
    x.setflags(write=False)
    assert prepare(x, colour, "cpu").shape == (7, *input_shape(colour))
    assert np.array_equal(x, before)
    floats = x.astype(np.float32)
    kept = floats.copy()
    prepare(floats, colour, "cpu")
    assert np.array_equal(floats, kept)
    assert prepare(x[:0], colour, "cpu").shape == (0, *input_shape(colour))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.zeros((1, 2, 2), np.uint8), r"\(2, 2\) and dtype uint8; .*\(1, 2, 2\)"),
        (np.zeros((1, 1, 2, 3), np.uint8), r"samples of shape \(1, 2, 3\)"),
        (np.zeros((1, 1, 2, 2), np.float64), "dtype float64; uint8 or float32"),
    ],
)
def test_other_shapes_and_dtypes_are_refused(x: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        prepare(x, card(), "cpu")
