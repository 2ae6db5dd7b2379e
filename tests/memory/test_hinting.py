"""Memories that tell the quantizer about the last message."""

import copy

import numpy as np
import pytest

from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, EncodeContext, PreviousRound, Shapes, Vector
from fedcomp.entropy import LowRankRaw
from fedcomp.memory import LinearFeedback, Memory, NoMemory, Regularized, State, WarmStart
from fedcomp.memory.hinting import NAME
from fedcomp.quantize import Identity, LowRank, RegularizedTopK, TopK
from fedcomp.quantized import Dense, Segments, Sparse, right_factors

MEMORY = Regularized(2)
SHAPES: Shapes = ((40, 50), (17,), (8, 3, 5, 5))
N = 40 * 50 + 17 + 600


def context(server_round: int, model: list[float]) -> EncodeContext:
    return EncodeContext(round=server_round, model=np.array(model, np.float32))


def sent_once() -> State:
    """Return the state of one of two nodes that sent 4 for entry 0 in round 5."""
    state = MEMORY.init(4)
    compensated = MEMORY.compensate(np.array([4, 1, 2, 0], np.float32), state, context(5, [1, 1, 1, 1]))
    return MEMORY.update(compensated, TopK(0.25).quantize(compensated), state)


def kept(others: float, update: Vector, mu: float = 1.0, denominator: str = "sent") -> list[int]:
    """Return the one of four entries that is kept after the others sent `others` for entry 0 and this node sent 2."""
    hint = PreviousRound(np.array([0]), np.array([others], np.float32), np.array([2], np.float32))
    quantizer = RegularizedTopK(0.25, mu, denominator)
    indices: list[int] = quantizer.quantize(CompensatedUpdate(update, hint=hint)).indices.tolist()
    return indices


def test_the_hint_is_the_sum_that_the_others_sent_for_the_last_entries() -> None:
    # The aggregate (4 + other) / 2 moved entry 0 from 1 to -1: the other node sent -8.
    hint = MEMORY.compensate(np.zeros(4, np.float32), sent_once(), context(6, [-1, 1, 1, 1])).hint
    assert isinstance(hint, PreviousRound)
    assert (hint.indices.tolist(), hint.others.tolist()) == ([0], [-8])


@pytest.mark.parametrize(
    "later",
    [context(7, [-1, 1, 1, 1]), context(5, [-1, 1, 1, 1]), EncodeContext(round=6), EncodeContext()],
    ids=["a round was skipped", "the same round again", "no model", "no context"],
)
def test_there_is_no_hint_unless_the_model_is_one_round_on(later: EncodeContext) -> None:
    assert MEMORY.compensate(np.zeros(4, np.float32), sent_once(), later).hint is None


def test_there_is_no_hint_after_a_lost_message() -> None:
    state = sent_once()
    state_after = MEMORY.rollback(Sparse(4, np.array([0]), np.array([4], np.float32)), state)
    assert state_after["residual"].tolist() == [4, 1, 2, 0]
    assert MEMORY.compensate(np.zeros(4, np.float32), state_after, context(6, [-1, 1, 1, 1])).hint is None


def test_an_entry_that_the_others_cancel_is_left_out_and_one_that_they_share_is_kept() -> None:
    update = np.array([4, 0.5, 2, 0], np.float32)
    assert kept(-2, update) == [2], "4 tanh(0) = 0"
    assert kept(2, update) == [0], "4 tanh(2) > 2"
    assert kept(2, update, mu=100) == [2], "a large mu penalises the entries of the last message"


def test_the_denominator_is_the_entry_as_it_was_sent_or_as_it_is_now() -> None:
    update = np.array([4, 0.5, 2, 0], np.float32)
    assert kept(-4, update, denominator="asked") == [2], "1 - 4 / 4 = 0"
    assert kept(-4, update, denominator="sent") == [0], "1 - 4 / 2 = -1, and 4 tanh(1) > 2"


def test_without_a_hint_and_with_mu_near_0_it_is_top_k() -> None:
    rng = np.random.default_rng(3)
    update = rng.standard_normal(1000, np.float32)
    expected = TopK(0.05).quantize(CompensatedUpdate(update))
    nothing = np.empty(0, np.float32)
    empty = PreviousRound(np.empty(0, np.int64), nothing, nothing)
    others = PreviousRound(np.arange(0, 1000, 7), *rng.standard_normal((2, 143), np.float32))
    for hint, mu in ((None, 4.0), (empty, 4.0), (others, 1e-6), (others, 5e-324)):
        found = RegularizedTopK(0.05, mu).quantize(CompensatedUpdate(update, hint=hint))
        assert np.array_equal(found.indices, expected.indices)
        assert np.array_equal(found.values, expected.values)


def test_the_kept_entries_are_those_of_a_slow_search_over_all_scores() -> None:
    rng = np.random.default_rng(4)
    for n, k in ((50, 5), (1000, 100), (1000, 900)):
        update = rng.standard_normal(n, np.float32)
        indices = np.sort(rng.choice(n, k, replace=False))
        hint = PreviousRound(indices, *rng.standard_normal((2, k), np.float32))
        scores = [abs(float(value)) for value in update]
        for index, other, value in zip(indices.tolist(), hint.others.tolist(), hint.own.tolist(), strict=True):
            scores[index] *= np.tanh(abs(1 + other / (value + np.copysign(1e-10, value))) / 2.0)
        best = sorted(sorted(range(n), key=lambda index: (-scores[index], index))[:k])
        assert RegularizedTopK(k / n, 2.0).quantize(CompensatedUpdate(update, hint=hint)).indices.tolist() == best


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="nodes is 0"):
        Regularized(0)
    with pytest.raises(ValueError, match="denominator is 'both'"):
        RegularizedTopK(0.1, 1, "both")
    with pytest.raises(ValueError, match="mu is 0"):
        RegularizedTopK(0.1, 0)


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
