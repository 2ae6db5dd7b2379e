"""Positions: each kind by hand, the smallest one of them, back and forth, and damage."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy import MAX_ENTRIES
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import delta_keys, gamma_positions, golomb_positions, positions
from fedcomp.entropy.codes.golomb_positions import runs_of
from fedcomp.entropy.codes.positions import ALL, BITMAP, BOUNDED, DELTA, GAMMA, GOLOMB, KINDS, SMALLEST, write
from fedcomp.errors import FedcompError
from fedcomp.quantized import Indices
from tests.entropy.laws import check_cheap_refusals, check_truncations, memory_below, survivors
from tests.reference import slow_positions

BY_HAND = np.array([4, 13, 14, 100])
STREAMS = {
    "Golomb": "01 04 02 1f00 4805",
    "bitmap": "02 0806" + "00" * 10 + "08" + "00" * 12,
    "delta keys": "03 04 01 10 5910 56",
    "gamma": "04 00 04008660 63 40 20 58",
}
every = pytest.mark.parametrize("kind", [*KINDS, SMALLEST, BOUNDED])


def read(data: bytes, n: int, k: int) -> Indices:
    reader = ByteReader(data)
    indices = positions.read(reader, n, k)
    reader.end()
    return indices


def clustered(k: int) -> Indices:
    """Return runs of ten neighbours, a thousand apart."""
    return np.array([1000 * (place // 10) + place % 10 for place in range(k)])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_the_one_written_by_hand(kind: str) -> None:
    stream = bytes.fromhex(STREAMS[kind])
    assert write(BY_HAND, 200, kind) == stream
    assert read(stream, 200, 4).tolist() == BY_HAND.tolist()


def test_the_textbook_codeword_of_9_with_b_2_is_11001() -> None:
    position = golomb_positions.GolombPositions(runs_of(np.array([9]), 10), 1, np.array([2]), 2)
    assert b"".join(position.write()) == bytes([2, 1, 0b110_00000, 0b01_000000])


def test_no_positions_take_no_bytes() -> None:
    nothing = np.empty(0, np.int64)
    assert write(nothing, 200) == write(nothing, 200, "delta keys") == b""
    found = read(b"", 200, 0)
    assert (found.size, str(found.dtype)) == (0, "int64")


def test_all_positions_take_one_byte() -> None:
    assert write(np.arange(200), 200) == bytes([ALL])
    assert np.array_equal(read(b"\0", 200, 200), np.arange(200))


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
def test_the_smallest_kind_that_takes_a_bit_for_each_position_is_written(indices: Indices, n: int, kind: int) -> None:
    stream = write(indices, n, BOUNDED)
    assert stream[0] == kind
    if kind != ALL:
        assert 8 * len(stream) >= indices.size
        assert len(stream) == min(len(write(indices, n, name)) for name in KINDS if name != "gamma")


@pytest.mark.parametrize(
    ("indices", "n", "kind"),
    [
        (np.arange(1, 5000, 50), 5000, GAMMA),
        (np.flatnonzero(np.random.default_rng(1).random(100_000) < 0.01), 100_000, GOLOMB),
        (np.flatnonzero(np.random.default_rng(1).random(5000) < 0.5), 5000, BITMAP),
        (clustered(600), 100_000, GAMMA),
        (np.arange(600), 100_000, GAMMA),
        (np.arange(5000), 5000, ALL),
    ],
    ids=["even", "sparse", "dense", "clustered", "first", "all"],
)
def test_the_smallest_kind_is_written(indices: Indices, n: int, kind: int) -> None:
    stream = write(indices, n)
    assert stream[0] == kind
    if kind != ALL:
        assert len(stream) == min(len(write(indices, n, name)) for name in KINDS)


@every
def test_random_positions_come_back_whatever_the_kind(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(150):
        n = int(rng.integers(1, 400))
        indices = np.sort(rng.permutation(n)[: rng.integers(0, n + 1)])
        stream = write(indices, n, kind)
        found = read(stream, n, indices.size)
        assert found.dtype == np.int64
        assert np.array_equal(found, indices)
        assert not indices.size or slow_positions(stream, 0, n, indices.size) == (indices.tolist(), len(stream))


@every
@pytest.mark.parametrize("n", [BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 3 * BLOCK_ENTRIES + 5])
def test_more_than_a_block_comes_back(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for p in (0.001, 0.3, 0.999):
        indices = np.flatnonzero(rng.random(n) < p)
        assert np.array_equal(read(write(indices, n, kind), n, indices.size), indices)


def test_chunks_of_different_densities_come_back() -> None:
    """Each chunk of 512 gaps has a Rice parameter of its own."""
    gaps = np.repeat([1, 40, 900], 512)
    gaps[::7] += 3
    indices = np.cumsum(gaps)
    n = int(indices[-1]) + 1
    assert len(set(golomb_positions.measure(runs_of(indices, n), indices.size).rice.tolist())) == 3
    assert np.array_equal(read(write(indices, n, "Golomb"), n, indices.size), indices)


@every
def test_positions_of_all_entries_take_four_times_the_vector_or_less(kind: str) -> None:
    n = 8 * BLOCK_ENTRIES
    stream = write(np.arange(n), n, kind)
    with memory_below(4 * 4 * n):
        read(stream, n, n)


def test_sizes_are_known_before_anything_is_written() -> None:
    rng = np.random.default_rng(3)
    for p in (0.0005, 0.05, 0.5):
        indices = np.flatnonzero(rng.random(100_000) < p)
        runs = runs_of(indices, 100_000)
        measured: list[positions.Measured] = [
            golomb_positions.measure(runs, indices.size),
            positions.Bitmap(indices, 100_000),
            delta_keys.measure(runs.ravel()[: indices.size]),
            gamma_positions.measure(runs.ravel()[: indices.size]),
        ]
        for one in measured:
            assert one.size == len(b"".join(one.write()))


def test_an_unknown_kind_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="'Elias'; .*'smallest', 'bounded', 'Golomb', 'bitmap', 'delta keys', 'gamma'"):
        write(BY_HAND, 200, "Elias")


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "numbers"),
    [
        ("", "0 bytes .* 1"),
        ("05", "kind 5; 0 to 4"),
        ("00", "200 entries; 4"),
        ("01 04 02 1f00 48", "1 bytes .* 2"),
        ("02 0806" + "00" * 10 + "08" + "00" * 11, "24 bytes .* 25"),
        ("02 0806" + "00" * 23, "3 ones; 4"),
        ("02 0806" + "00" * 22 + "03", "5 ones; 4"),
        ("03 04 01 10 5910", "0 bytes .* 1"),
        ("04 03 04008660 63 40 20 58", "mode 3; one of 0, 2"),
        ("04 00 04008660 63 40 20", "0 bytes .* 1"),
        ("04 00 01f8", "4 gaps of 8589934592 entries at least, in a vector of 200"),
        ("04 00 020180 c0 fff0", "an index of 255 in a vector of 200"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(stream: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        read(bytes.fromhex(stream), 200, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_is_refused(kind: str) -> None:
    indices = np.flatnonzero(np.random.default_rng(4).random(3000) < 0.2)
    check_truncations(lambda cut: read(cut, 3000, indices.size), write(indices, 3000, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_are_refused_or_give_positions_that_can_be(kind: str) -> None:
    n = 3000
    indices = np.flatnonzero(np.random.default_rng(5).random(n) < 0.05)
    found = list(survivors(lambda changed: read(changed, n, indices.size), write(indices, n, kind), 500))
    assert 0 < len(found) < 450
    for survivor in found:
        assert survivor.size == indices.size
        assert survivor[0] >= 0
        assert survivor[-1] < n
        assert (np.diff(survivor) > 0).all()


def test_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    rest = [b"", b"\0" * 40, b"\x1f" * 40, b"\xff" * 40, b"\1\xff\xff\xff\xff\7" + b"\xff" * 40]
    bodies = [bytes([kind]) + end for kind in (GOLOMB, BITMAP, DELTA) for end in rest]
    check_cheap_refusals(lambda data: read(data, MAX_ENTRIES, 300), bodies)


def test_the_rice_parameter_next_below_the_guess_is_tried_too() -> None:
    """The mean of 497 runs of 1535 and 15 of 0 is 1490, times ln 2 above 2^10; yet 1535 >> 9 is 2, and 1535 >> 10 is 1."""
    runs = np.array([[0] * 15 + [1535] * 497], np.uint32)
    measured = golomb_positions.measure(runs, 512)
    assert (measured.rice.tolist(), measured.ones) == ([9], 2 * 497)
    assert 2 * 497 + 9 * 512 < 497 + 10 * 512
