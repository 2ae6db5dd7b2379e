"""An update is checked before it counts: the memory that this needs, and the weights that it may lead to."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.core.compensated_update import BLOCK_ENTRIES
from fedcomp.core.types import Vector
from fedcomp.errors import CorruptError
from fedcomp.quantized import Compact, Dense, held_bytes, l2_norm
from fedcomp.sync import mean, reply_checks, updates
from fedcomp.sync.encoding import encode_change
from fedcomp.sync.exact_tensors import rebased_exact
from fedcomp.sync.replica import Replica, start_replica
from fedcomp.wire import BFLOAT16, decode_body
from fedcomp.wire.codec_ids import codec_id
from fedcomp.wire.frame import FLAG_EXACT, SECONDS, Frame, Kind
from fedcomp.wire.layout import layout_of
from tests.wire.specimens import TEXTS

N = 4 * BLOCK_ENTRIES + 1


def published(value: float = 1) -> Replica:
    arrays = {"w": np.full(N, value, np.float32)}
    return start_replica(layout_of(arrays), arrays, 3)


def update(replica: Replica, text: str, vector: Vector) -> Frame:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(vector, compressor.init(vector.size))
    here = (replica.version, replica.version, replica.layout.digest, replica.fingerprint, 9)
    return Frame(Kind.UPDATE, codec_id(compressor.entropy), 0, *here, SECONDS.pack(1, 2) + body)


@pytest.mark.parametrize("place", [0, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, N - 1])
@pytest.mark.parametrize("text", ["topk(density=1.0)", "topk(density=0.3)", "dense()"])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_entry_that_leads_to_a_weight_too_large_is_found_at_any_index(text: str, place: int, sign: int) -> None:
    vector = np.random.default_rng(0).standard_normal(N, np.float32)
    replica = published()
    updates.decode_update(update(replica, text, vector), replica)
    vector[place] = sign * 1.01e15
    with pytest.raises(
        CorruptError, match="its update leads to a weight of -?1.01e\\+15 in tensor 'w'; at most 1e\\+15"
    ):
        updates.decode_update(update(replica, text, vector), replica)


@pytest.mark.parametrize("text", ["crosspolytope(bits=0.3)", "eden(bits=1.0)", "eden(bits=2.5)", "eden(bits=0.3)"])
def test_a_rotated_update_is_refused_exactly_if_a_weight_is_too_large(text: str) -> None:
    """Whether its entries are looked at, or its scales alone are small enough."""
    replica, outcomes = published(-1e6), set[tuple[bool, bool]]()
    vector = np.random.default_rng(0).standard_normal(N, np.float32)
    for exponent in (0, 8, 11, 12, 13, 14, 14.5, 15, 16):
        frame = update(replica, text, vector * np.float32(10**exponent))
        change = decode_body(frame.codec, frame.payload[SECONDS.size :], replica.layout)
        too_large = bool(np.abs(replica.vector + change.dense()).max() > reply_checks.MAX_WEIGHT_MAGNITUDE)
        outcomes.add((too_large, reply_checks.is_surely_small(change, replica)))
        if too_large:
            with pytest.raises(CorruptError, match="its update leads to a weight of .* in tensor 'w'; at most 1e\\+15"):
                updates.decode_update(frame, replica)
        else:
            updates.decode_update(frame, replica)
    assert outcomes == {(False, True), (False, False), (True, False)}
    for value, factor in ((-2e15, 1e10), (-3e38, 1e36)):  # in float32, the second bound would be infinite
        with pytest.raises(CorruptError, match="a weight of -"):
            updates.decode_update(update(published(value), text, vector * np.float32(factor)), published(value))


def test_the_resulting_weight_is_limited_not_the_update() -> None:
    """A model may hold larger weights, as masks do; they may not grow."""
    replica = published(-9e37)
    vector = np.full(N, 1.8e38, np.float32)
    updates.decode_update(update(replica, "dense()", vector), replica)
    with pytest.raises(CorruptError, match="a weight of -2.7e\\+38 .* at most 1e\\+15"):
        updates.decode_update(update(replica, "dense()", -vector), replica)


@pytest.mark.parametrize("text", ["stc(density=1.0)", "topk(density=1.0)", "dense()", "qsgd(bucket=1)"])
def test_decoding_an_update_needs_at_most_four_times_the_model_in_memory(text: str) -> None:
    replica = published()
    frame = update(replica, text, np.random.default_rng(0).standard_normal(N, np.float32))
    tracemalloc.start()
    updates.decode_update(frame, replica)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * N + len(frame.payload)


def mixed() -> Replica:
    """Return a model of several dtypes, with an exact tensor of floats."""
    arrays: dict[str, NDArray[Any]] = {
        "half": np.array([1, -60_000], np.float16),
        "brain": np.zeros(2, np.uint16).view(BFLOAT16),
        "whole": np.zeros(2, np.float64),
        "norm.running_var": np.array([1, 3e38], np.float32),
        "steps": np.array(2**62),
    }
    return start_replica(layout_of(arrays), arrays)


@pytest.mark.parametrize(
    ("entry", "value", "text"),
    [
        (0, 65_503, None),
        (0, 65_504, r"6\S+ in tensor 'half'; at most 65504 .* float16"),
        (1, 125_000, None),
        (1, -6_000, "-66000 in tensor 'half'"),
        (2, 1e15, None),
        (3, -1.1e15, r"-1.1e\+15 in tensor 'brain'; at most 1e\+15 .* bfloat16"),
        (5, 2e38, r"2e\+38 in tensor 'whole'"),
    ],
)
@pytest.mark.parametrize("method", ["dense()", "topk(density=0.01)"])
def test_a_weight_stays_within_its_dtype(method: str, entry: int, value: float, text: str | None) -> None:
    replica, vector = mixed(), np.zeros(6, np.float32)
    vector[entry] = value
    frame = update(replica, method, vector)
    if text is None:
        updates.decode_update(frame, replica)
    else:
        with pytest.raises(CorruptError, match=text):
            updates.decode_update(frame, replica)


@pytest.mark.parametrize(
    ("value", "text"),
    [([0, -2.9e38], None), ([1e15, 0], None), ([3e38, 0], r"3e\+38 in tensor 'norm.running_var'; at most 1e\+15")],
)
def test_exact_floats_may_not_grow_beyond_any_use(value: list[float], text: str | None) -> None:
    replica = mixed()
    frame = update(replica, "dense()", np.zeros(6, np.float32))
    exact = np.array(value, "<f4").tobytes() + np.array(-(2**62), "<i8").tobytes()
    frame = replace(frame, flags=FLAG_EXACT, payload=frame.payload + exact)
    if text is None:
        assert updates.decode_update(frame, replica).exact == exact
    else:
        with pytest.raises(CorruptError, match=text):
            updates.decode_update(frame, replica)


def test_a_weight_that_is_no_number_is_refused_whatever_the_code_lets_through() -> None:
    change = Dense(np.array([0, 0, np.nan, 0, 0, 0], np.float32))
    with pytest.raises(CorruptError, match="nan in tensor 'brain'"):
        reply_checks.check_magnitude(change, mixed())


@pytest.mark.parametrize("text", TEXTS)
def test_an_update_that_is_decoded_later_is_the_same(text: str) -> None:
    arrays = {"w": np.ones((50, 40), np.float32), "steps": np.array(3)}
    replica = start_replica(layout_of(arrays), arrays, 3)
    compressor, vector = fedcomp.parse(text), np.random.default_rng(0).standard_normal(2000, np.float32)
    body, _ = compressor.encode(vector, compressor.init(2000), 5, shapes=replica.layout.shapes)
    here = (3, 3, replica.layout.digest, replica.fingerprint, 9)
    payload = SECONDS.pack(1, 2) + body + replica.exact
    frame = Frame(Kind.UPDATE, codec_id(compressor.entropy), FLAG_EXACT, *here, payload)
    now, later = updates.decode_update(frame, replica).change, updates.Undecoded(frame, replica.layout, replica.exact)
    sums = np.ones(2000), np.ones(2000)
    for change, total in zip((now, later), sums, strict=True):
        change.add_to(total, 0.3)
    np.testing.assert_array_equal(*sums)
    np.testing.assert_array_equal(later.dense(), now.dense())
    assert later.n == now.n == 2000
    assert (later.sparse() is None) == (now.sparse() is None)


@pytest.mark.sample(20)
@pytest.mark.parametrize("text", TEXTS)
def test_the_memory_of_a_decoded_update_is_counted(text: str) -> None:
    arrays = {"w": np.ones((1000, 200), np.float32)}
    replica = start_replica(layout_of(arrays), arrays, 3)
    compressor, vector = fedcomp.parse(text), np.random.default_rng(0).standard_normal(200_000, np.float32)
    body, _ = compressor.encode(vector, compressor.init(vector.size), 5, shapes=replica.layout.shapes)
    compressor.entropy.decode(body, n=vector.size)  # what is kept for later calls is here now
    tracemalloc.start()
    try:
        change = compressor.entropy.decode(body, n=vector.size)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes(change) > taken - 10_000
    assert held_bytes(change) < taken + len(body) + 10_000  # some are views of the body


def test_the_mean_of_exact_tensors_is_weighted_too() -> None:
    replica, pairs = mixed(), []
    for value, steps, weight in ((1.0, 10, 1.0), (4.0, 40, 2.0)):
        frame = update(replica, "dense()", np.zeros(6, np.float32))
        exact = np.array([value, 0], "<f4").tobytes() + np.array(steps, "<i8").tobytes()
        frame = replace(frame, flags=FLAG_EXACT, payload=frame.payload + exact)
        pairs.append((updates.decode_update(frame, replica), weight))
    _, means = mean.weighted_mean(pairs, replica.layout)
    assert {name: array.tolist() for name, array in means.items()} == {"norm.running_var": [3, 0], "steps": 30}


@pytest.mark.parametrize("count", [2, 10, 100])
def test_a_mean_that_only_rounding_keeps_from_zero_ends_there(count: int) -> None:
    """Whatever the weights; a change to a ten thousandth of a weight, or of a weight that is zero, keeps its bits."""
    rng = np.random.default_rng(count)
    start = rng.standard_normal(1000, np.float32)
    start[500:520] = 0
    replica = start_replica(layout_of({"w": start}), {"w": start}, 3)
    goal = np.concatenate([np.zeros(500, np.float32), start[500:] * np.float32(1e-4)])
    goal[500:510] = 1e-30
    one = updates.decode_update(update(replica, "dense()", goal - start), replica)
    change, _ = mean.weighted_mean([(one, float(weight)) for weight in rng.integers(1, 900, count)], replica.layout)
    before = change.copy()
    mean.end_in_zero(change, start, count)
    assert not (start + change)[:500].any()
    assert change[500:].tobytes() == before[500:].tobytes()


@pytest.mark.parametrize("text", ["eden(bits=0.15)", "eden(bits=0.6)"])
@pytest.mark.parametrize("frozen", [0, 10, 45])
def test_entries_that_were_rotated_back_are_kept_in_no_more_memory(text: str, frozen: int) -> None:
    """The check of the magnitude needs them, and the mean needs them again; some tensors may be frozen."""
    arrays = {"frozen": np.ones((frozen, 400), np.float32), "w": np.ones((50 - frozen, 400), np.float32)}
    replica = start_replica(layout_of(arrays), arrays, 3)
    vector = np.random.default_rng(0).standard_normal(20_000, np.float32)
    vector[: 400 * frozen] = 0
    compressor = fedcomp.parse(text)
    codec, body, _ = encode_change(compressor, vector, compressor.init(20_000), replica.layout, seed=5)
    here = (3, 3, replica.layout.digest, replica.fingerprint, 9)
    frame = Frame(Kind.UPDATE, codec, 0, *here, SECONDS.pack(1, 2) + body)
    kept, change = updates.decode_update(frame, replica).change, decode_body(codec, body, replica.layout)
    assert isinstance(kept, Compact)
    assert held_bytes(kept) <= held_bytes(change)
    sums = np.ones(20_000, np.float32), np.ones(20_000, np.float32)
    for one, total in zip((kept, change), sums, strict=True):
        one.add_to(total, 0.3)
    np.testing.assert_array_equal(*sums)
    assert l2_norm(kept) == l2_norm(change) > 0


def test_the_exact_tensors_of_a_late_node_by_hand() -> None:
    """A counter moves by the node's change, a statistic becomes what was sent, and what the node left alone stays."""

    def exact_of(**changes: NDArray[Any]) -> tuple[Replica, bytes]:
        arrays: dict[str, NDArray[Any]] = {
            "w": np.zeros(1, np.float32),
            "count": np.array(3),
            "bn.running_var": np.ones(2, np.float32),
            "bn.running_mean": np.zeros(2, np.float16),
            "flag": np.array([True]),
        }
        replica = start_replica(layout_of(arrays | changes), arrays | changes)
        return replica, replica.exact

    _, start = exact_of()
    statistics: dict[str, NDArray[Any]] = {
        "bn.running_var": np.full(2, 0.5, np.float32),
        "bn.running_mean": np.full(2, 4, np.float16),
    }
    published, _ = exact_of(count=np.array(10), flag=np.array([False]), **statistics)
    trained: dict[str, NDArray[Any]] = {"count": np.array(5), "bn.running_var": np.full(2, 0.25, np.float32)}
    _, sent = exact_of(**trained)
    found = published.layout.unflatten_exact(rebased_exact(sent, start, published))
    assert found["count"] == 12
    assert found["bn.running_var"].tolist() == [0.25, 0.25]
    assert found["bn.running_mean"].tolist() == [4, 4]
    assert found["flag"].tolist() == [False]
    _, turned = exact_of(flag=np.array([False]))
    assert not published.layout.unflatten_exact(rebased_exact(turned, start, published))["flag"].any()
