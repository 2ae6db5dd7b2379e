"""RigL on the server: which weights move, by hand and by law."""

import math
from typing import Any

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, RigL, to_record
from fedcomp.flower.strategies.rigl import moved, total_growth
from tests.flower.strategies.by_hand import one_round, values

Array = NDArray[Any]


def mask_of(arrays: dict[str, Array], name: str = "w") -> NDArray[np.bool_]:
    return np.unpackbits(arrays[f"{name}_mask"], count=arrays[name].size).astype(np.bool_).reshape(arrays[name].shape)


def test_the_smallest_leave_and_the_largest_gradients_enter() -> None:
    """Half of the four in the mask: -1 and 2 leave, and of the gradients outside, -9 and 5 enter."""
    arrays: dict[str, Array] = {
        "w": np.array([[4, 0, -1, 0], [2, 0, -3, 0]], np.float32),
        "w_mask": np.array([0b10101010], np.uint8),
        "b": np.ones(3, np.float32),
    }
    result = moved(arrays, {"w": np.array([[100.0, 5, 0, 1], [0, -9, 0, 2]])}, 0.5)
    assert result["w"].tolist() == [[4, 0, 0, 0], [0, 0, -3, 0]]
    assert result["w_mask"].tolist() == [0b11000110]
    assert result["b"].tolist() == [1, 1, 1]
    assert arrays["w_mask"].tolist() == [0b10101010], "the arguments stay as they are"


def test_no_more_leave_than_have_a_gradient_outside() -> None:
    arrays: dict[str, Array] = {"w": np.array([4.0, 3, 2, 0, 0]), "w_mask": np.array([0b11100000], np.uint8)}
    result = moved(arrays, {"w": np.array([0, 0, 0, 0, 0.5])}, 1.0)
    assert (result["w"].tolist(), result["w_mask"].tolist()) == ([4, 3, 0, 0, 0], [0b11001000])


def test_a_weight_that_leaves_stays_if_its_gradient_is_among_the_largest() -> None:
    """The smallest are 1 and 2; of their gradients 9 and 3 and those outside, 5 and 4, the largest are 9 and 5."""
    arrays: dict[str, Array] = {"w": np.array([4.0, 1, 2, 3, 0, 0]), "w_mask": np.array([0b11110000], np.uint8)}
    result = moved(arrays, {"w": np.array([99.0, 9, 3, 99, 5, 4])}, 0.5)
    assert (result["w"].tolist(), result["w_mask"].tolist()) == ([4, 1, 0, 3, 0, 0], [0b11011000])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("regrow", [False, True])
def test_as_many_enter_as_leave_and_the_others_keep_their_values(seed: int, regrow: bool) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((7, 9)) < 0.4
    weight = rng.standard_normal((7, 9)) * mask
    growth = rng.standard_normal((7, 9)) * (rng.random((7, 9)) < 0.5) * (regrow | ~mask)
    share = float(rng.uniform(0, 1))
    arrays: dict[str, Array] = {"w": weight, "w_mask": np.packbits(mask)}
    result = moved(arrays, {"w": growth}, share)
    after = mask_of(result)
    count = min(int(share * mask.sum()), int(np.count_nonzero(growth * ~mask)))
    assert after.sum() == mask.sum()
    assert (after & ~mask).sum() == (mask & ~after).sum() <= count
    assert np.array_equal(result["w"], weight * after)
    if regrow and count:
        smallest = np.zeros_like(mask)
        smallest.flat[np.flatnonzero(mask)[np.argsort(np.abs(weight[mask]))[:count]]] = True
        assert np.array_equal(mask & ~after, smallest & ~after), "the others do not leave"
        assert np.abs(growth[after & (smallest | ~mask)]).min() >= np.abs(growth[~after]).max(initial=0)
    elif count:
        assert (after & ~mask).sum() == count
        assert np.abs(weight[mask & ~after]).max() <= np.abs(weight[mask & after]).min(initial=math.inf)
        assert np.abs(growth[after & ~mask]).min() >= np.abs(growth[~after & ~mask]).max(initial=0)


MODEL: dict[str, Array] = {
    "w": np.zeros(2),
    "w_mask": np.zeros(1, np.uint8),
    "v": np.zeros(1),
    "v_mask": np.zeros(1, np.uint8),
}


def test_gradients_are_weighed_and_those_that_are_not_reported_are_zero() -> None:
    reports = [(2.0, {"w": np.array([1.0, 0.0])}), (1.0, {"w": np.array([-3.0, 2.0]), "v": np.array([1.0])})]
    total = total_growth([(weight, to_record(arrays)) for weight, arrays in reports], MODEL)
    assert {name: array.tolist() for name, array in total.items()} == {"w": [-1, 2], "v": [1]}


@pytest.mark.parametrize(
    "array",
    [np.ones(3), np.ones((2, 1)), np.ones((2, 2)), np.array([np.nan, 1]), np.array([np.inf, 1]), np.ones(2, np.int64),
     np.array(["a", "b"])],
)  # fmt: skip
@pytest.mark.parametrize("name", ["w", "x"])
def test_a_gradient_that_does_not_fit_is_left_out(array: Array, name: str) -> None:
    honest, other = to_record({"w": np.array([1.0, 2.0])}), to_record({name: array, "v": np.array([1.0])})
    total = total_growth([(1.0, other), (1.0, honest)], MODEL)
    assert {name: array.tolist() for name, array in total.items()} == {"w": [1, 2], "v": [1]}


def test_masks_of_plain_flower_stay_masks_through_a_mean() -> None:
    """Seven nodes of weight 1/7: the mean of a byte is not the byte."""
    mask = np.array([0, 1, 254, 255, 170, 85, 51, 7], np.uint8)
    arrays: dict[str, Array] = {"w": np.ones(64, np.float32), "w_mask": mask}
    model = one_round(RigL(), to_record(arrays), [arrays] * 7)
    assert model is not None
    result = model["w_mask"].numpy()
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, mask)


@pytest.mark.parametrize("weight", ["gate", "other"])
def test_a_learned_tensor_whose_name_ends_as_that_of_a_mask_is_averaged_as_any_other(weight: str) -> None:
    published = {weight: np.ones(8, np.float32), "gate_mask": np.full(1, 0.4, np.float32)}
    model = one_round(RigL(interval=1), to_record(published), [published, published])
    assert values(model, "gate_mask") == pytest.approx([0.4])
    total = total_growth([(1.0, to_record({weight: np.ones(8)}))], published)
    assert total == {}, "no weight without a mask grows"


def test_weights_move_every_interval_until_the_end() -> None:
    strategy = RigL(interval=5, until=20)
    assert [number for number in range(1, 40) if strategy.moves_in(number)] == [5, 10, 15]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"interval": 0}, "interval is 0"), ({"fraction": 2}, "fraction is 2"), ({"until": 0}, "until is 0")],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RigL(**settings)


def test_a_masked_model_and_a_compressor_that_does_not_fit_are_refused_at_the_start() -> None:
    arrays: dict[str, Array] = {"w": np.ones((8, 8), np.float32), "w_mask": np.full(8, 7, np.uint8)}
    grid = LocalGrid(ClientApp(), 2, {})
    with pytest.raises(ValueError, match="the model has a mask, and powersgd"):
        CompressedStrategy(RigL(), uplink=fedcomp.powersgd()).start(grid, to_record(arrays), num_rounds=1)
