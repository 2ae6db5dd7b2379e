"""A rounded first model: each tensor in whole multiples of one power of two, as few as its bits allow."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.wire import BFLOAT16, bfloat16_to_float32, float32_to_bfloat16, layout_of, rounded, write_vector

RNG = np.random.default_rng(5)
ARRAYS: dict[str, NDArray[Any]] = {
    "wide": RNG.standard_normal((30, 50)).astype(np.float32),
    "narrow": RNG.uniform(-0.01, 0.01, 700).astype(np.float64),
    "half": RNG.standard_normal(90).astype(np.float16),
    "brain": float32_to_bfloat16(RNG.standard_normal(90).astype(np.float32)),
    "bias": np.zeros(50, np.float32),
    "scalar": np.array(0.3, np.float32),
    "norm.running_var": RNG.random(50).astype(np.float32),
    "norm.num_batches_tracked": np.array(7),
}


def values(array: NDArray[Any]) -> NDArray[np.float64]:
    plain = bfloat16_to_float32(array) if array.dtype == BFLOAT16 else array
    return plain.astype(np.float64)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", ["wide", "narrow", "half", "brain", "scalar"])
def test_entries_are_multiples_of_the_least_power_of_two_that_fits(name: str, bits: int) -> None:
    before, after = values(ARRAYS[name]), values(rounded(ARRAYS, bits)[name])
    most = 2 ** (bits - 1) - 1
    step = 2.0 ** math.ceil(math.log2(np.abs(before).max() / most))
    counts = after / step
    np.testing.assert_array_equal(counts, np.rint(counts))
    assert np.abs(counts).max() <= most
    assert np.abs(before).max() / (step / 2) > most, "a finer step would need more bits"
    assert np.abs(after - before).max() <= step / 2
    assert not np.signbit(after[after == 0]).any()


def test_shapes_dtypes_names_and_what_is_exact_stay() -> None:
    after = rounded(ARRAYS, 8)
    assert [(name, a.dtype, a.shape) for name, a in after.items()] == [(n, a.dtype, a.shape) for n, a in ARRAYS.items()]
    for name in ("bias", "norm.running_var", "norm.num_batches_tracked"):
        np.testing.assert_array_equal(after[name], ARRAYS[name])
    assert not np.array_equal(after["wide"], ARRAYS["wide"])


def test_rounding_again_changes_nothing() -> None:
    once = rounded(ARRAYS, 6)
    twice = rounded(once, 6)
    assert all(once[name].tobytes() == twice[name].tobytes() for name in ARRAYS)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_key_frame_takes_about_as_many_bits(bits: int) -> None:
    arrays = rounded({name: ARRAYS[name] for name in ("wide", "bias")}, bits)
    vector, _ = layout_of(arrays).flatten(arrays)
    assert 8 * len(write_vector(vector)[1]) < (bits + 1) * vector.size


@pytest.mark.parametrize("bits", [1, 17, 8.0, True, "8"])
def test_other_bits_are_refused(bits: Any) -> None:
    with pytest.raises(ValueError, match="bits"):
        rounded(ARRAYS, bits)


def test_entries_beyond_float32_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'w' holds 1.7e\+308; at most 3.4"):
        rounded({"w": np.array([1.7e308, 0.5])}, 8)


@pytest.mark.parametrize(("bits", "error"), [(8, 0.02), (4, 0.29)])
def test_rounding_changes_gaussian_weights_by_as_much_as_the_docstring_says(bits: int, error: float) -> None:
    weights = np.random.default_rng(1).standard_normal(500_000).astype(np.float32)
    change = rounded({"w": weights}, bits)["w"] - weights
    assert np.linalg.norm(change) / np.linalg.norm(weights) == pytest.approx(error, rel=0.15)


def test_two_bits_leave_little_of_gaussian_weights() -> None:
    assert np.mean(rounded({"w": ARRAYS["wide"]}, 2)["w"] != 0) < 0.05


def test_tiny_entries_go_to_the_unit_of_the_grid() -> None:
    after = rounded({"w": np.array([1e-9, 2.0**-24, 3e-8], np.float32)}, 8)["w"]
    assert after.tolist() == [0, 2.0**-24, 2.0**-24]
