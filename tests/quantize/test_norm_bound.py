"""The largest norm of what is sent: by hand, for every method, and where a method cannot keep to it."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedcomp
from fedcomp.core import CompensatedUpdate
from fedcomp.methods import METHODS
from fedcomp.quantize import Identity, NormBound, Signs, TopK

FOLLOW_THE_SCALE = [name for name in METHODS if name != "signsgd"]  # its step is fixed


def test_a_vector_of_norm_10_is_halved_under_a_bound_of_5_and_left_alone_under_10() -> None:
    vector = np.array([6, -8], np.float32)
    halved = NormBound(Identity(), 5).quantize(CompensatedUpdate(vector)).dense()
    np.testing.assert_allclose(halved, [3, -4], rtol=1e-6)
    assert NormBound(Identity(), 10).quantize(CompensatedUpdate(vector)).dense().tolist() == [6, -8]
    assert NormBound(Identity(), 0).quantize(CompensatedUpdate(vector)).dense().tolist() == [0, 0]


def test_what_is_cut_off_stays_in_the_residual() -> None:
    compressor = fedcomp.topk(density=0.5)
    body, state = compressor.encode(np.array([6, -8, 1, 0], np.float32), compressor.init(4), max_norm=5)
    sent = compressor.decode(body, 4)
    np.testing.assert_allclose(sent, [3, -4, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(state["residual"], [3, -4, 1, 0], rtol=1e-6)
    body, state = compressor.encode(np.zeros(4, np.float32), state, max_norm=5)
    np.testing.assert_allclose(compressor.decode(body, 4), [3, -4, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 3000])
@pytest.mark.parametrize("name", FOLLOW_THE_SCALE)
def test_nothing_longer_than_the_bound_is_sent_and_nothing_is_lost(name: str, n: int) -> None:
    compressor, rng, bound = METHODS[name](), np.random.default_rng(n), 0.2
    state: dict[str, Any] = compressor.init(n)
    asked, received = np.zeros(n), np.zeros(n)
    for number in range(4):
        update = rng.standard_t(2, n).astype(np.float32) * np.float32(10.0 ** rng.integers(-3, 3))
        body, state = compressor.encode(update, state, seed=number, server_round=number, max_norm=bound)
        sent = compressor.decode(body, n).astype(np.float64)
        assert np.linalg.norm(sent) <= bound * (1 + 1e-6)
        asked, received = asked + update, received + sent
    assert received.any()
    if "residual" in state:
        np.testing.assert_allclose(received + state["residual"], asked, atol=1e-5 * np.abs(asked).max())


def test_a_bound_that_is_not_reached_changes_no_byte() -> None:
    update = np.random.default_rng(0).standard_normal(1000, np.float32)
    for name in FOLLOW_THE_SCALE:
        compressor = METHODS[name]()
        body, _ = compressor.encode(update, compressor.init(1000), seed=3)
        bounded, _ = compressor.encode(update, compressor.init(1000), seed=3, max_norm=1e6)
        assert bounded == body


def test_a_step_that_does_not_follow_the_scale_is_refused_and_the_state_stays() -> None:
    with pytest.raises(ValueError, match=r"norm 2 .* 1 is the most"):
        NormBound(Signs(step=1.0), 1).quantize(CompensatedUpdate(np.ones(4, np.float32)))
    residual, update = np.full(4, 0.5, np.float32), np.full(4, 1e-3, np.float32)
    with pytest.raises(ValueError, match="1 is the most"):
        NormBound(Signs(step=1.0), 1).quantize(CompensatedUpdate(residual, update, in_place=True))
    assert residual.tolist() == [0.5] * 4


@pytest.mark.parametrize("bound", [-1, math.nan, math.inf, "1", True])
def test_a_bound_is_a_number_from_0(bound: Any) -> None:
    with pytest.raises(ValueError, match="max_norm"):
        NormBound(TopK(0.5), bound)


@pytest.mark.parametrize("text", ["topk(density=0.05)", "stc(density=0.05)", "eden(bits=1, feedback=True)", "dgc"])
def test_a_torch_tensor_gives_the_same_bytes(text: str) -> None:
    compressor, updates = fedcomp.parse(text), np.random.default_rng(2).standard_normal((3, 3000), np.float32)
    sent: list[list[bytes]] = []
    for convert in (np.array, torch.tensor):
        state, bodies = compressor.init(3000), list[bytes]()
        for number, update in enumerate(updates):
            body, state = compressor.encode(convert(update), state, seed=number, server_round=number, max_norm=1.0)
            bodies.append(body)
        sent.append(bodies)
    assert sent[0] == sent[1]
