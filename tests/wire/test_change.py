"""A change on a device has the bits of the one on the host, and only flags cross to it."""

from typing import Any

import numpy as np
import pytest

from fedcomp.wire import BFLOAT16, change_of, check_ties, float32_to_bfloat16, layout_of

torch: Any = pytest.importorskip("torch")
other_device: Any = pytest.importorskip("tests.other_device")

FLOATS = ("float16", "bfloat16", "float32", "float64")


def array_of(dtype: str, values: Any) -> Any:
    return float32_to_bfloat16(np.asarray(values, np.float32)) if dtype == "bfloat16" else np.asarray(values, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("trained_dtype", FLOATS)
def test_the_change_has_the_bits_of_flatten(dtype: str, trained_dtype: str) -> None:
    rng = np.random.default_rng(5)
    arrays = {
        "w": array_of(dtype, rng.standard_normal((7, 11))),
        "steps": np.array(3),
        "empty": np.empty((0, 4), np.float32),
        "b": rng.standard_normal(5, np.float32),
    }
    layout = layout_of(arrays)
    base = layout.flatten(arrays)[0]
    base += np.float32(1e-4) * rng.standard_normal(layout.n, np.float32)
    moved = arrays | {"w": array_of(trained_dtype, rng.standard_normal((7, 11))), "steps": np.array(9)}
    expected, exact = layout.flatten(moved, base)
    with other_device.OtherDevice() as device:
        tensors = {name: to_tensor(array).to(other_device.DEVICE) for name, array in moved.items()}
        tensors["w"] = tensors["w"].t().contiguous().t()
        change, device_exact = change_of(layout, tensors, base)
        assert change.device == other_device.DEVICE
        assert device.to_host == 2 * len(layout.parts) + 8, "the flags, and the exact tensor"
        assert device_exact == exact
        assert change.cpu().numpy().tobytes() == expected.tobytes()
    if torch.cuda.is_available():
        change, _ = change_of(layout, {name: to_tensor(array).cuda() for name, array in moved.items()}, base)
        assert change.is_cuda
        assert change.cpu().numpy().tobytes() == expected.tobytes()
    on_host, _ = change_of(layout, {name: to_tensor(array) for name, array in moved.items()}, base)
    assert on_host.tobytes() == expected.tobytes()


def to_tensor(array: Any) -> Any:
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": np.array([1, np.nan])}, "tensor 'w' holds NaN or infinity"),
        ({"w": np.array([1, 1e300])}, "tensor 'w' holds a value beyond float32"),
        ({"w": np.ones(3)}, r"tensor 'w' has shape \(3,\)"),
        ({"v": np.ones(3)}, r"unexpected \['v'\]"),
        ({"b": None}, r"missing \['b'\]"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_the_same_words(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {"w": np.ones(2), "b": np.ones(3, np.float32)}
    layout, base = layout_of(arrays), np.ones(5, np.float32)
    moved = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(ValueError, match=message):
        layout.flatten(moved, base)
    with other_device.OtherDevice():
        tensors = {name: torch.from_numpy(array).to(other_device.DEVICE) for name, array in moved.items()}
        with pytest.raises(ValueError, match=message):
            change_of(layout, tensors, base)


def test_tensors_in_two_places_or_of_whole_numbers_are_read_on_the_host() -> None:
    arrays = {"w": np.ones(2, np.float32), "b": np.ones(3, np.float32)}
    layout, base = layout_of(arrays), np.full(5, 0.5, np.float32)
    with other_device.OtherDevice():
        there = torch.ones(2).to(other_device.DEVICE)
        whole = torch.ones(3, dtype=torch.int32).to(other_device.DEVICE)
        for b in (torch.ones(3), np.ones(3, np.float32), whole, torch.ones(3).to(other_device.SECOND_DEVICE)):
            change, _ = change_of(layout, {"w": there, "b": b}, base)
            assert isinstance(change, np.ndarray)
            assert change.tolist() == [0.5] * 5


def test_tied_tensors_are_compared_where_they_are() -> None:
    arrays = {"a": np.ones(100, np.float32), "b": np.ones(100, np.float32)}
    tensors = layout_of(arrays, tied=[("a", "b")]).tensors
    with other_device.OtherDevice() as device:
        a, b = (torch.ones(100).to(other_device.DEVICE) for _ in range(2))
        check_ties(tensors, {"a": a, "b": b})
        assert device.to_host == 8, "whether they are equal"
        for other in (a + 1, (a + 1).cpu(), a[:50]):
            with pytest.raises(ValueError, match="'a' and 'b' are declared as tied, but hold different values"):
                check_ties(tensors, {"a": a, "b": other})
