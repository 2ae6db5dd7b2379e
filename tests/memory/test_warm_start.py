"""PowerSGD's warm start: the power iteration continues from round to round, and error feedback still loses nothing."""

import copy

import numpy as np
import pytest

from fedcomp.compressor import Compressor
from fedcomp.core import Shapes, Vector
from fedcomp.entropy import LowRankRaw
from fedcomp.memory import LinearFeedback, Memory, NoMemory, WarmStart
from fedcomp.memory.hinting import NAME
from fedcomp.quantize import Identity, LowRank
from fedcomp.quantized import Dense, Segments, right_factors

SHAPES: Shapes = ((40, 50), (17,), (8, 3, 5, 5))
N = 40 * 50 + 17 + 600


def power(rank: int, memory: Memory) -> Compressor:
    return Compressor("power", (), LowRank(rank), LowRankRaw(), memory)


def update(seed: int, n: int = N) -> Vector:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def test_the_right_factors_of_the_message_are_kept_in_addition_to_the_residual() -> None:
    compressor = power(2, WarmStart(LinearFeedback()))
    state = compressor.init(N)
    assert {name: array.shape for name, array in state.items()} == {"residual": (N,), NAME: (0,)}
    body, state = compressor.encode(update(0), state, shapes=SHAPES)
    factors = compressor.entropy.decode(body)
    assert isinstance(factors, Segments)
    assert state[NAME].tobytes() == right_factors(factors).tobytes()
    assert state[NAME].shape == (2 * (50 + 75),)
    assert state["residual"].tobytes() == (update(0) - factors.dense()).tobytes()


def test_everything_else_is_up_to_the_other_memory() -> None:
    assert WarmStart(LinearFeedback()).vectors == ("residual",)
    assert WarmStart(NoMemory()).vectors == ()
    assert not WarmStart(LinearFeedback()).incremental


@pytest.mark.parametrize("shapes", [SHAPES, ()])
@pytest.mark.parametrize("scale", [1.0, 1e-40, 1e25])
def test_everything_sent_plus_the_residual_is_the_sum_of_all_updates(shapes: Shapes, scale: float) -> None:
    compressor = power(2, WarmStart(LinearFeedback()))
    state, total, received = compressor.init(N), np.zeros(N), np.zeros(N)
    for turn in range(12):
        value = (update(turn) * scale).astype(np.float32)
        if turn == 5:
            value[:] = 0
        body, state = compressor.encode(value, state, turn, shapes=shapes)
        total += value
        received += compressor.decode(body, N)
    assert np.allclose(received + state["residual"], total, rtol=0, atol=max(1e-5 * scale, 1e-44))


def test_a_constant_update_is_approximated_better_each_round_only_with_the_warm_start() -> None:
    left, right = (np.linalg.qr(update(seed, 3600).reshape(60, 60).astype(float))[0] for seed in (0, 1))
    matrix = (left * 0.8 ** np.arange(60)) @ right
    value = matrix.astype(np.float32).ravel()
    best = float(np.linalg.norm(np.linalg.svd(matrix)[1][2:]))
    errors: dict[bool, list[float]] = {True: [], False: []}
    for warm in errors:
        compressor = power(2, WarmStart(NoMemory()) if warm else NoMemory())
        state = compressor.init(3600)
        for _ in range(40):
            body, state = compressor.encode(value, state, shapes=((60, 60),))
            errors[warm].append(float(np.linalg.norm(compressor.decode(body) - value)))
    assert errors[True][0] == errors[False][0] == errors[False][-1] > 1.02 * best
    assert errors[True][-1] < 1.0001 * best
    assert np.all(np.diff(errors[True]) < 1e-6)


def test_factors_of_another_rank_or_model_are_ignored() -> None:
    narrow, wide = (power(rank, WarmStart(LinearFeedback())) for rank in (1, 2))
    _, state = narrow.encode(update(0), narrow.init(N), shapes=SHAPES)
    cold = {**copy.deepcopy(state), NAME: np.empty(0, np.float32)}
    for shapes in (SHAPES, (), ((N,),)):
        body, _ = wide.encode(update(1), wide.select(copy.deepcopy(state), N), shapes=shapes)
        assert body == wide.encode(update(1), copy.deepcopy(cold), shapes=shapes)[0]


def test_a_state_of_a_residual_alone_can_be_continued() -> None:
    compressor = power(2, WarmStart(LinearFeedback()))
    alone = LinearFeedback().init(N)
    assert compressor.encode(update(0), alone)[0] == compressor.encode(update(0), compressor.init(N))[0]
    selected = compressor.select({"residual": update(1)}, N)
    assert selected["residual"].tobytes() == update(1).tobytes()
    assert selected[NAME].size == 0


def test_a_lost_message_comes_back_into_the_residual_and_the_factors_stay() -> None:
    compressor = power(2, WarmStart(LinearFeedback()))
    body, state = compressor.encode(update(0), compressor.init(N), shapes=SHAPES)
    before = state[NAME].tobytes()
    state = compressor.memory.rollback(compressor.entropy.decode(body), state)
    assert np.allclose(state["residual"], update(0), atol=1e-5)
    assert state[NAME].tobytes() == before


def test_a_vector_without_factors_leaves_none() -> None:
    memory = WarmStart(LinearFeedback())
    state = memory.init(N)
    compensated = memory.compensate(update(0), state)
    quantized = Identity().quantize(compensated)
    assert isinstance(quantized, Dense)
    state = memory.update(compensated, quantized, state)
    assert state[NAME].size == 0
    assert not state["residual"].any()


def test_a_refused_update_leaves_the_state_as_it_was() -> None:
    compressor = power(2, WarmStart(LinearFeedback()))
    _, state = compressor.encode(update(0), compressor.init(N), shapes=SHAPES)
    before = {name: array.tobytes() for name, array in state.items()}
    for place in (0, 2005, N - 1):
        value = update(1)
        value[place] = np.inf
        with pytest.raises(ValueError, match="is inf"):
            compressor.encode(value, state, shapes=SHAPES)
        assert {name: array.tobytes() for name, array in state.items()} == before
