"""bfloat16 tensors: by hand, against torch, through a layout and as refused dtypes."""

import numpy as np
import pytest
import torch

from fedcomp.errors import CorruptError, DivergedError
from fedcomp.wire import BFLOAT16, bfloat16_to_float32, float32_to_bfloat16, layout_of, parse_layout


def from_torch(tensor: torch.Tensor) -> np.ndarray:
    """Return the words of a bfloat16 tensor."""
    return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)


def to_torch(words: np.ndarray) -> torch.Tensor:
    """Return words as a bfloat16 tensor."""
    return torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)


@pytest.mark.parametrize(
    ("value", "word"),
    [(1.0, 0x3F80), (-2.0, 0xC000), (0.0, 0), (1 + 2.0**-8, 0x3F80), (1 + 3 * 2.0**-8, 0x3F82), (1 + 2.0**-7, 0x3F81)],
)
def test_a_value_is_rounded_to_the_nearest_word_ties_to_even(value: float, word: int) -> None:
    (found,) = float32_to_bfloat16(np.array([value], np.float32)).view("<u2")
    assert found == word


def test_rounding_is_that_of_torch() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    values = np.append(values[np.isfinite(values)], [3.4e38, -3.4e38, 1e-45, 0.0, -0.0]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = torch.from_numpy(values).to(torch.bfloat16)
    words = float32_to_bfloat16(values)
    assert np.array_equal(words, from_torch(expected))
    assert np.array_equal(bfloat16_to_float32(words), expected.float().numpy())


@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)])
def test_words_come_back_in_their_shape(shape: tuple[int, ...]) -> None:
    words = float32_to_bfloat16(np.ones(shape, np.float32))
    assert (words.shape, words.dtype) == (shape, BFLOAT16)
    assert bfloat16_to_float32(words).shape == shape


def test_a_torch_state_dict_comes_back_from_the_layout_to_the_bit() -> None:
    torch.manual_seed(0)
    state = {"w": torch.randn(5, 4), "b": torch.tensor(0.5), "norm.running_mean": torch.randn(4)}
    narrow = {name: tensor.to(torch.bfloat16) for name, tensor in state.items()}
    arrays = {name: from_torch(tensor) for name, tensor in narrow.items()}
    layout = layout_of(arrays)
    assert [(tensor.dtype, tensor.policy) for tensor in layout.tensors] == [
        ("bfloat16", "compressed"),
        ("bfloat16", "compressed"),
        ("bfloat16", "exact"),
    ]
    assert (layout.n, layout.exact_size) == (21, 8)
    assert parse_layout(layout.text) == layout
    vector, exact = layout.flatten(arrays)
    assert vector.dtype == np.float32
    for name, array in layout.unflatten(vector, exact).items():
        assert torch.equal(to_torch(array), narrow[name])


def test_wide_arrays_are_rounded_where_they_travel_exactly_and_kept_where_they_are_compressed() -> None:
    arrays = {"w": np.ones(2, BFLOAT16), "n.running_mean": np.ones(2, BFLOAT16)}
    layout = layout_of(arrays)
    wide = {"w": np.array([1 + 2.0**-20, 3]), "n.running_mean": np.array([1 + 2.0**-20, 3])}
    vector, exact = layout.flatten(wide)
    assert vector.tolist() == [1 + 2.0**-20, 3]
    assert bfloat16_to_float32(layout.unflatten_exact(exact)["n.running_mean"]).tolist() == [1, 3]


def test_a_difference_is_measured_from_the_rounded_model() -> None:
    layout = layout_of({"w": float32_to_bfloat16(np.array([1, 1], np.float32))})
    base = np.array([1 + 2.0**-20, 1], np.float32)
    held = layout.unflatten(base, b"")
    change, _ = layout.flatten(held, base)
    assert change.tolist() == [0, 0], "a node that trains nothing asks for nothing"
    change, _ = layout.flatten(held, base, rounded=False)
    assert change.tolist() == [-(2.0**-20), 0]


def test_numbers_that_bfloat16_cannot_hold_are_refused() -> None:
    layout = layout_of({"w": np.ones(1, BFLOAT16), "n.running_var": np.ones(1, BFLOAT16)})
    nan = np.array([0x7FC0], "<u2").view(BFLOAT16)
    with pytest.raises(DivergedError, match="'w'"):
        layout.flatten({"w": nan, "n.running_var": np.ones(1, BFLOAT16)})
    with pytest.raises(DivergedError, match="'n.running_var' .*bfloat16"):
        layout.flatten({"w": np.ones(1), "n.running_var": np.array([3.4e38])})
    with pytest.raises(CorruptError, match=r"'n.running_var'"):
        layout.check_exact(nan.tobytes())


def test_unnamed_words_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="'w' .*BFLOAT16.* float32"):
        layout_of({"w": np.zeros(2, "V2")})
