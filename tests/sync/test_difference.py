"""A difference in place of a model is recognised, and no model is taken for one."""

import numpy as np
import pytest

from fedcomp.core import Vector
from fedcomp.sync.difference import is_difference

MODEL = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
STEP = np.random.default_rng(1).standard_normal(1000).astype(np.float32)


def _replied(reply: Vector) -> bool:
    return is_difference(reply - MODEL, MODEL)


@pytest.mark.parametrize("size", [1e-6, 0.01, 0.1, 0.5])
def test_a_difference_up_to_half_the_norm_of_the_model_is_recognised(size: float) -> None:
    assert _replied((size * STEP).astype(np.float32))


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.1, 1.0, 10.0, 1e4])
def test_a_model_is_no_difference_however_far_it_was_trained(size: float) -> None:
    assert not _replied((MODEL + size * STEP).astype(np.float32))


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5])
def test_a_pruned_model_is_no_difference(density: float) -> None:
    kept = np.random.default_rng(2).random(1000) < density
    assert not _replied((MODEL * kept).astype(np.float32))
    assert not _replied(((MODEL + 0.3 * STEP) * kept).astype(np.float32))


def test_a_decayed_model_another_model_zeros_and_a_model_from_zeros_are_no_differences() -> None:
    assert not _replied(np.float32(0.3) * MODEL)
    assert not _replied(STEP)
    assert not _replied(np.zeros_like(MODEL))
    assert not is_difference(STEP, np.zeros_like(MODEL))


def test_few_entries_prove_nothing() -> None:
    assert not is_difference(-MODEL[:63] * np.float32(0.9), MODEL[:63])


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_a_tensor_is_judged_on_its_device(size: float) -> None:
    torch = pytest.importorskip("torch")
    other_device = pytest.importorskip("tests.other_device")
    model = np.tile(MODEL, 200)
    replies = [(size * np.tile(STEP, 200)).astype(np.float32), (model + size * np.tile(STEP, 200)).astype(np.float32)]
    for reply in replies:
        expected = is_difference(reply - model, model)
        with other_device.OtherDevice() as device:
            assert is_difference(torch.from_numpy(reply - model).to(other_device.DEVICE), model) == expected
            assert device.to_host == 4 * 8, "four sums"
