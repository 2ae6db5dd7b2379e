"""Error feedback: nothing is lost, the end of float32, and a sender that remembers nothing."""

from typing import Any

import numpy as np
import pytest
import torch

import fedcomp
from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, Vector
from fedcomp.errors import DivergedError
from fedcomp.memory import Ef21, LinearFeedback, Memory, NoMemory
from fedcomp.quantize import Ternarize, TopK, chain
from fedcomp.quantized import Dense, Sparse

MEMORY, DECAYING = LinearFeedback(), LinearFeedback(0.5, 0.5, "decayed")
STC = chain(TopK(0.1), Ternarize())
HUGE = np.array([3e38, -3e38], np.float32)


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


def test_two_rounds_of_error_feedback_by_hand() -> None:
    compressor = fedcomp.stc(density=0.25)
    body, state = compressor.encode(vector(4, 1, -3, 0), compressor.init(4))
    assert compressor.decode(body).tolist() == [4, 0, 0, 0]
    assert state["residual"].tolist() == [0, 1, -3, 0]
    body, state = compressor.encode(vector(1, 1, -1, 0), state)
    assert compressor.decode(body).tolist() == [0, 0, -4, 0]
    assert state["residual"].tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize("n", [1, 31, 2 * BLOCK_ENTRIES + 1])
@pytest.mark.parametrize("density", [1 / 400, 0.1, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e-40, 1e25])
def test_everything_sent_plus_the_residual_is_the_sum_of_all_updates(n: int, density: float, scale: float) -> None:
    rng = np.random.default_rng(n)
    compressor = fedcomp.stc(density)
    state = compressor.init(n)
    total, received = np.zeros(n), np.zeros(n)
    for turn in range(12):
        update = (rng.standard_normal(n) * scale).astype(np.float32)
        if turn == 5:
            update[:] = 0
        body, state = compressor.encode(update, state)
        total += update
        received += compressor.decode(body, n)
    assert np.allclose(received + state["residual"], total, rtol=0, atol=max(1e-5 * scale, 1e-44))


def test_small_entries_are_sent_in_the_end() -> None:
    compressor = fedcomp.stc(density=0.1)
    update = np.arange(1, 11, dtype=np.float32)
    state, received = compressor.init(10), np.zeros(10)
    for _ in range(300):
        body, state = compressor.encode(update, state)
        received += compressor.decode(body)
    assert (received > 0).all()
    assert np.allclose(received / 300, update, atol=0.5)


@pytest.mark.parametrize("n", [3, 5 * BLOCK_ENTRIES])
def test_a_residual_beyond_float32_is_refused_without_a_warning_and_stays_as_it_was(n: int) -> None:
    compressor = fedcomp.stc(density=1 / n)
    huge = np.full(n, 3e38, np.float32)
    huge[0] = 3.3e38
    _, state = compressor.encode(huge, compressor.init(n))
    before = state["residual"].tobytes()
    with pytest.raises(ValueError, match="entry 1 is inf"), np.errstate(all="raise"):
        compressor.encode(huge, state)
    assert state["residual"].tobytes() == before


@pytest.mark.parametrize("state", [{}, {"other": np.zeros(3, np.float32)}, {"residual": np.zeros(3)}])
def test_a_state_without_a_float32_residual_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="float32 residual"):
        fedcomp.stc().encode(np.ones(3, np.float32), state)


def test_a_lost_message_comes_back_into_the_residual() -> None:
    compressor = fedcomp.stc(density=0.5)
    update = vector(1, -2, 4, 0.5)
    body, state = compressor.encode(update, compressor.init(4))
    state = compressor.memory.rollback(compressor.entropy.decode(body), state)
    assert state["residual"].tolist() == update.tolist()


def test_sparse_and_dense_vectors_are_subtracted_alike() -> None:
    sparse = Sparse(4, np.array([1, 3]), vector(2, -1))
    for quantized in (sparse, Dense(sparse.dense())):
        compensated = CompensatedUpdate(vector(1, 1, 1, 1), vector(0, 1, 0, 0))
        assert MEMORY.update(compensated, quantized, {})["residual"].tolist() == [1, 0, 1, 2]


def test_the_update_may_be_read_only_and_is_not_changed() -> None:
    compressor = fedcomp.stc(density=0.1)
    for n in (100, 5 * BLOCK_ENTRIES):
        update = np.random.default_rng(n).standard_normal(n, np.float32)
        before = update.tobytes()
        update.flags.writeable = False
        state = compressor.init(n)
        for _ in range(3):
            _, state = compressor.encode(update, state)
        assert update.tobytes() == before


def test_a_huge_message_that_comes_back_does_not_block_the_sender() -> None:
    lost = Sparse(3, np.array([0, 1]), vector(3e38, -3e38))
    state = MEMORY.rollback(lost, {"residual": vector(2e38, -2e38, 1)})
    largest = float(np.finfo(np.float32).max)
    assert state["residual"].tolist() == [largest, -largest, 1]
    compressor = fedcomp.stc(density=1)
    body, state = compressor.encode(vector(0, 0, 0), state)
    assert np.isfinite(compressor.decode(body)).all()


def test_a_residual_of_infinity_is_refused_and_never_sent() -> None:
    compressor = fedcomp.stc(density=0.5)
    with pytest.raises(DivergedError, match="NaN or infinity"):
        compressor.encode(vector(1, 2, 3, 4), {"residual": vector(0, np.inf, 0, 0)})


def test_a_decaying_error_shrinks_before_the_update_is_added() -> None:
    state = {"decayed": vector(4, -8)}
    compensated = DECAYING.compensate(vector(1, 1), state)
    assert compensated.dense().tolist() == [3, -3]
    assert DECAYING.update(compensated, Dense(vector(3, 0)), state)["decayed"].tolist() == [0, -3]


def test_an_entry_that_is_never_sent_fades() -> None:
    state = {"decayed": vector(1024)}
    nothing = Sparse(1, np.empty(0, np.int64), np.empty(0, np.float32))
    for _ in range(10):
        state = DECAYING.update(DECAYING.compensate(vector(0), state), nothing, state)
    assert state["decayed"].tolist() == [1]


def test_a_decaying_error_that_a_lost_message_comes_back_to_stays_within_float32() -> None:
    state = DECAYING.rollback(Dense(vector(1, 3e38)), {"decayed": vector(2, 3e38)})
    assert state["decayed"].tolist() == [3, np.finfo(np.float32).max]


def test_a_share_of_the_error_is_added_and_the_error_of_the_raw_update_is_kept() -> None:
    memory, state = LinearFeedback(0.25, 0.5, "error"), {"error": vector(4, 8)}
    compensated = memory.compensate(vector(1, -2), state)
    assert compensated.dense().tolist() == [2, 0]
    after = memory.update(compensated, Dense(vector(1.5, 0.5)), state)
    assert after["error"].tolist() == [0.5 * 4 + 1 - 1.5, 0.5 * 8 - 2 - 0.5]


@pytest.mark.parametrize("settings", [(1, 1), (0.95, 0.95), (0.2, 0.9), (0, 1)])
def test_over_many_rounds_both_equations_hold(settings: tuple[float, float]) -> None:
    alpha, beta = settings
    rng, memory = np.random.default_rng(0), LinearFeedback(alpha, beta, "error")
    state, error = memory.init(1000), np.zeros(1000)
    for _ in range(20):
        update = rng.standard_normal(1000, np.float32)
        compensated = memory.compensate(update, state)
        assert np.allclose(compensated.dense(), alpha * error + update, atol=1e-5)
        quantized = STC.quantize(compensated)
        state = memory.update(compensated, quantized, state)
        error = beta * error + update - quantized.dense()
        assert np.allclose(state["error"], error, atol=1e-5)


def test_error_feedback_under_another_name_is_the_same_to_the_bit() -> None:
    rng, named = np.random.default_rng(0), LinearFeedback(1, 1, "error")
    one, other = named.init(1000), MEMORY.init(1000)
    for _ in range(20):
        update = rng.standard_normal(1000, np.float32)
        compensated, expected = named.compensate(update, one), MEMORY.compensate(update, other)
        quantized, same = STC.quantize(compensated), STC.quantize(expected)
        assert np.array_equal(quantized.dense(), same.dense())
        one, other = named.update(compensated, quantized, one), MEMORY.update(expected, same, other)
        assert np.array_equal(one["error"], other["residual"])


@pytest.mark.parametrize(
    ("text", "name"), [("stc", "residual"), ("sparseloco", "decayed"), ("ecqsgd", "accumulated_error")]
)
def test_saved_states_keep_the_names_of_their_arrays(text: str, name: str) -> None:
    compressor = fedcomp.parse(text)
    assert compressor.init(3).keys() == {name}
    assert compressor.select({name: vector(1, 2, 3)}, 3)[name].tolist() == [1, 2, 3]


def test_the_contraction_is_that_of_the_paper() -> None:
    assert LinearFeedback(0.2, 0.9, "error").contraction(4.0) == pytest.approx(0.2**2 * 4 + 0.7**2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((-0.1, 1, "error"), "alpha is -0.1"),
        ((1, 1.5, "error"), "beta is 1.5"),
        ((True, 1, "error"), "alpha is True"),
        ((0.5, 0.5), "residual with alpha=0.5 and beta=0.5"),
    ],
)
def test_settings_out_of_range_are_refused(settings: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearFeedback(*settings)


def test_nothing_is_added_kept_or_rolled_back() -> None:
    memory, update = NoMemory(), np.ones(3, np.float32)
    assert memory.init(3) == {}
    compensated = memory.compensate(update, {})
    assert compensated.dense().tolist() == [1, 1, 1]
    assert memory.update(compensated, Dense(update), {}) == {}
    assert memory.rollback(Dense(update), {}) == {}


@pytest.mark.parametrize("memory", [LinearFeedback(0, 1, "error"), LinearFeedback(1, 1, "error")])
def test_an_error_that_is_never_sent_stays_at_the_largest_float32(memory: Memory) -> None:
    state = memory.init(2)
    for _ in range(3):
        state = memory.update(memory.compensate(HUGE, state), Dense(np.zeros(2, np.float32)), state)
        assert all(np.isfinite(vector).all() for vector in state.values())
    assert [vector.tolist() for vector in state.values()] == [[MAX_FLOAT32, -MAX_FLOAT32]]


def test_an_estimate_stays_within_float32_whatever_is_sent() -> None:
    memory = Ef21(1.0)
    state = memory.init(2)
    for _ in range(3):
        state = memory.update(memory.compensate(HUGE, state), Dense(HUGE), state)
    assert state["estimate"].tolist() == [MAX_FLOAT32, -MAX_FLOAT32]


def test_top_k_of_a_bounded_sum_of_tensors_stays_within_float32() -> None:
    parts = (torch.from_numpy(HUGE), torch.from_numpy(HUGE))
    assert TopK(1.0).quantize(CompensatedUpdate(*parts, bounded=True)).values.tolist() == [MAX_FLOAT32, -MAX_FLOAT32]
