"""Positions: each kind by hand, the smallest one of them, back and forth, and what a hostile stream can say."""

import tracemalloc

import numpy as np
import pytest

from fedcomp.core.compensated_update import BLOCK_ENTRIES
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.entropy.codes import delta_keys, golomb_positions, positions
from fedcomp.entropy.codes.positions import ALL, BITMAP, DELTA, GOLOMB, KINDS, SMALLEST
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError, TruncatedError
from fedcomp.quantized.vectors import Indices, Ternary
from tests.reference import slow_positions

BY_HAND = np.array([4, 13, 14, 100])
STREAMS = {
    "Golomb": "01 04 02 1f00 4805",
    "bitmap": "02 0806" + "00" * 10 + "08" + "00" * 12,
    "delta keys": "03 04 01 10 5910 56",
}
every = pytest.mark.parametrize("kind", [*KINDS, SMALLEST])


def clustered(k: int) -> Indices:
    """Return runs of ten neighbours, a thousand apart."""
    return np.array([1000 * (place // 10) + place % 10 for place in range(k)])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_the_one_written_by_hand(kind: str) -> None:
    stream = bytes.fromhex(STREAMS[kind])
    assert positions.put(BY_HAND, 200, kind) == stream
    found, at = positions.take(b"\0" + stream + b"\0", 1, 200, 4)
    assert (found.tolist(), at) == (BY_HAND.tolist(), 1 + len(stream))


def test_no_positions_take_no_bytes() -> None:
    nothing = np.empty(0, np.int64)
    assert positions.put(nothing, 200) == positions.put(nothing, 200, "delta keys") == b""
    found, at = positions.take(b"", 0, 200, 0)
    assert found.dtype == np.int64
    assert (found.size, at) == (0, 0)


def test_all_positions_take_one_byte() -> None:
    assert positions.put(np.arange(200), 200) == bytes([ALL])
    assert np.array_equal(positions.take(b"\0", 0, 200, 200)[0], np.arange(200))


def test_the_golomb_kind_is_that_of_ternary_symbols() -> None:
    indices = np.flatnonzero(np.random.default_rng(0).random(50_000) < 0.02)
    symbols = Ternary(50_000, indices, np.zeros(indices.size, np.bool_), np.float32(1))
    assert positions.put(indices, 50_000, "Golomb")[1:] in GolombTernary().encode(symbols)


@pytest.mark.parametrize(
    ("indices", "n", "kind"),
    [
        (np.arange(1, 5000, 50), 5000, GOLOMB),
        (np.flatnonzero(np.random.default_rng(1).random(5000) < 0.5), 5000, BITMAP),
        (clustered(600), 100_000, DELTA),
        (np.arange(5000), 5000, ALL),
    ],
    ids=["sparse", "dense", "clustered", "all"],
)
def test_the_smallest_kind_is_written(indices: Indices, n: int, kind: int) -> None:
    stream = positions.put(indices, n)
    assert stream[0] == kind
    if kind != ALL:
        assert len(stream) == min(len(positions.put(indices, n, name)) for name in KINDS)
        assert KINDS[next(name for name in KINDS if positions.put(indices, n, name) == stream)] == kind


@every
def test_random_positions_come_back_whatever_the_kind(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        n = int(rng.integers(1, 400))
        indices = np.sort(rng.permutation(n)[: rng.integers(0, n + 1)])
        stream = positions.put(indices, n, kind)
        found, at = positions.take(stream + b"\1", 0, n, indices.size)
        assert at == len(stream)
        assert found.dtype == np.int64
        assert np.array_equal(found, indices)
        assert not indices.size or slow_positions(stream, 0, n, indices.size) == (indices.tolist(), len(stream))


@every
@pytest.mark.parametrize("n", [BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 3 * BLOCK_ENTRIES + 5])
def test_more_than_a_block_comes_back(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for p in (0.001, 0.3, 0.999):
        indices = np.flatnonzero(rng.random(n) < p)
        assert np.array_equal(positions.take(positions.put(indices, n, kind), 0, n, indices.size)[0], indices)


@every
def test_positions_of_all_entries_take_four_times_the_vector_or_less(kind: str) -> None:
    n = 8 * BLOCK_ENTRIES
    stream = positions.put(np.arange(n), n, kind)
    tracemalloc.start()
    positions.take(stream, 0, n, n)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * n


def test_sizes_are_known_before_anything_is_written() -> None:
    rng = np.random.default_rng(3)
    for p in (0.0005, 0.05, 0.5):
        indices = np.flatnonzero(rng.random(100_000) < p)
        runs = np.diff(indices, prepend=-1) - 1
        table = golomb_positions.gaps(indices, 100_000)
        measured: list[positions.Measured] = [
            golomb_positions.measure(table, indices.size),
            positions.Bitmap(indices, 100_000),
            delta_keys.measure(runs.astype(np.uint32)),
        ]
        for one in measured:
            assert one.size == len(b"".join(one.write()))


def test_another_kind_is_the_callers_mistake() -> None:
    with pytest.raises(
        ValueError, match="positions is 'Elias'; it is one of 'smallest', 'Golomb', 'bitmap', 'delta keys'"
    ):
        positions.put(BY_HAND, 200, "Elias")


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ("", "the body ends before the positions"),
        ("04", "positions of kind 4; known are 0 to 3"),
        ("00", "positions of all 200 entries; 4 are kept"),
        ("01 04 02 1f00 48", "1 bytes of remainders; 4 entries need 2"),
        ("02 0806" + "00" * 10 + "08" + "00" * 11, "24 bytes of a bitmap; 200 entries need 25"),
        ("02 0806" + "00" * 23, "a bitmap with 3 ones; 4 entries are kept"),
        ("02 0806" + "00" * 22 + "03", "a bitmap with 5 ones; 4 entries are kept"),
        ("03 04 01 10 5910", "2 bytes of delta keys; 4 entries need 3"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(stream: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}$"):
        positions.take(bytes.fromhex(stream), 0, 200, 4)


def test_padding_of_a_bitmap_is_zero() -> None:
    with pytest.raises(CorruptError, match="bitmap: the padding bits are not zero"):
        positions.take(bytes.fromhex("02 81"), 0, 7, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_is_refused(kind: str) -> None:
    indices = np.flatnonzero(np.random.default_rng(4).random(9000) < 0.1)
    stream = positions.put(indices, 9000, kind)
    for length in range(len(stream)):
        with pytest.raises((TruncatedError, CorruptError)):
            positions.take(stream[:length], 0, 9000, indices.size)


@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_are_refused_or_give_positions_that_can_be(kind: str) -> None:
    rng = np.random.default_rng(5)
    n = 3000
    indices = np.flatnonzero(rng.random(n) < 0.05)
    stream = positions.put(indices, n, kind)
    refused = 0
    for _ in range(1000):
        changed = bytearray(stream)
        for _ in range(rng.integers(1, 4)):
            changed[rng.integers(len(changed))] = rng.integers(256)
        try:
            found, at = positions.take(bytes(changed), 0, n, indices.size)
        except FedcompError:
            refused += 1
            continue
        assert at <= len(changed)
        assert found.size == indices.size
        assert found[0] >= 0
        assert found[-1] < n
        assert (np.diff(found) > 0).all()
    assert 100 < refused < 1000


def test_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    rest = [b"", b"\0" * 40, b"\x1f" * 40, b"\xff" * 40, b"\1\xff\xff\xff\xff\7" + b"\xff" * 40]
    tracemalloc.start()
    for kind in (GOLOMB, BITMAP, DELTA):
        for end in rest:
            with pytest.raises(FedcompError):
                positions.take(bytes([kind]) + end, 0, MAX_ENTRIES, 300)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
