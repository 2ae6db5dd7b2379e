"""Tensors on any device give the bodies of numpy vectors, to the byte."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.backends import torch_backend
from fedcomp.core import BLOCK_ENTRIES

torch: Any = pytest.importorskip("torch")

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])


@devices
@pytest.mark.parametrize(
    "text", ["stc(density=0.01)", "stc(density=0.3, order='interleaved')", "stc(density=1)", "dense()"]
)
@pytest.mark.parametrize("n", [1, 1000, 3 * BLOCK_ENTRIES])
def test_several_rounds_of_tensors_give_the_bytes_of_the_arrays(device: str, text: str, n: int) -> None:
    rng = np.random.default_rng(n)
    compressor = fedcomp.parse(text)
    on_host, on_device = compressor.init(n), compressor.init(n)
    for turn in range(5):
        update = rng.standard_normal(n, np.float32)
        if turn % 2:
            update = np.round(update)
        if turn == 3:
            update *= np.float32(1e-41)
        tensor = torch.from_numpy(update.copy()).to(device)
        expected, on_host = compressor.encode(update, on_host)
        body, on_device = compressor.encode(tensor, on_device)
        assert body == expected
        assert tensor.cpu().numpy().tobytes() == update.tobytes()
        for name, array in on_device.items():
            assert array.device.type == device
            assert array.cpu().numpy().tobytes() == on_host[name].tobytes()


@devices
@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_ties_and_zeros_of_a_tensor_are_selected_as_those_of_the_array(device: str, value: float) -> None:
    compressor = fedcomp.stc(density=0.01)
    update = np.full(10_000, value, np.float32)
    update[::3] = 0
    expected, _ = compressor.encode(update, compressor.init(10_000))
    assert compressor.encode(torch.from_numpy(update).to(device), compressor.init(10_000))[0] == expected


@devices
def test_the_residual_stays_on_the_device_and_a_lost_message_comes_back_to_it(device: str) -> None:
    compressor = fedcomp.stc(density=0.1)
    update = torch.arange(1, 101, dtype=torch.float32, device=device)
    body, state = compressor.encode(update, compressor.init(100))
    assert state["residual"].device.type == device
    state = compressor.memory.rollback(compressor.entropy.decode(body, n=100), state)
    assert np.allclose(state["residual"].cpu().numpy(), np.arange(1, 101), rtol=1e-6)


@devices
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_tensor_that_is_not_finite_is_refused_and_the_state_is_as_it_was(device: str, bad: float) -> None:
    compressor = fedcomp.stc(density=0.1)
    _, state = compressor.encode(torch.ones(50, device=device), compressor.init(50))
    before = state["residual"].cpu().numpy().tobytes()
    for place in (0, 25, 49):
        update = torch.ones(50, device=device)
        update[place] = bad
        with pytest.raises(ValueError, match=f"entry {place} is {bad}"):
            compressor.encode(update, state)
    assert state["residual"].cpu().numpy().tobytes() == before


def test_a_tensor_that_records_gradients_is_read_without_recording_them() -> None:
    compressor = fedcomp.stc(density=0.1)
    update = torch.arange(1, 51, dtype=torch.float32, requires_grad=True)
    body, state = compressor.encode(update, compressor.init(50))
    assert compressor.encode(update.detach().numpy(), compressor.init(50))[0] == body
    assert not state["residual"].requires_grad


def test_a_sender_may_alternate_between_tensors_and_arrays() -> None:
    rng = np.random.default_rng(8)
    compressor = fedcomp.stc(density=0.1)
    plain, mixed = compressor.init(200), compressor.init(200)
    for turn in range(4):
        update = rng.standard_normal(200, np.float32)
        expected, plain = compressor.encode(update, plain)
        body, mixed = compressor.encode(torch.from_numpy(update) if turn % 2 else update, mixed)
        assert body == expected


@pytest.fixture
def flushing() -> Iterator[None]:
    """Make this thread treat denormals as zeros, as some programs do for speed."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushing")
@pytest.mark.parametrize("n", [1000, 3 * BLOCK_ENTRIES])
def test_zeros_are_not_kept_when_the_processor_flushes_denormals(n: int) -> None:
    compressor = fedcomp.stc(density=0.1)
    update = np.zeros(n, np.float32)
    update[[5, 7]] = 3, -1
    body, _ = compressor.encode(update, compressor.init(n))
    assert np.flatnonzero(compressor.decode(body)).tolist() == [5, 7]
    assert compressor.encode(torch.from_numpy(update), compressor.init(n))[0] == body
    update.view(np.int32)[:] = 1000
    for value in (update, torch.from_numpy(update)):
        body, _ = compressor.encode(value, compressor.init(n))
        assert not compressor.decode(body).any()


@pytest.mark.parametrize("text", ["stc", "dense", "qsgd", "dgc"])
@pytest.mark.parametrize(
    "update",
    [
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, 1),
        torch.ones(()),
        torch.ones(0),
        torch.ones(3, device="meta"),
        torch.ones(3).to_sparse(),
    ],
    ids=["float64", "matrix", "scalar", "empty", "meta", "sparse"],
)
def test_a_tensor_that_is_no_dense_float32_vector_is_refused(text: str, update: Any) -> None:
    compressor = fedcomp.parse(text)
    with pytest.raises(ValueError, match="an update of"):
        compressor.encode(update, compressor.init(3))


@devices
def test_parts_are_joined_and_asked_for_entries(device: str) -> None:
    first, second = torch.zeros(2, device=device), torch.tensor([0.0, -3.0, 0.0], device=device)
    whole = torch_backend.join([first, second])
    assert (whole.tolist(), whole.device.type) == ([0, 0, 0, -3, 0], device)
    assert torch_backend.any_in(whole, [slice(0, 3), slice(3, 5), slice(4, 5)]).tolist() == [False, True, False]
    assert torch_backend.any_in(whole, []).tolist() == []
