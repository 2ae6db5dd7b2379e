"""Ternary vectors in Golomb-Rice codes: by hand, back and forth, their size, and damage."""

from contextlib import suppress

import numpy as np
import pytest

from fedcomp.entropy import MAX_ENTRIES, EntropyCode, GolombTernary, GolombTernaryInterleaved
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.entropy.bodies.golomb import STRETCH, rice_parameter
from fedcomp.entropy.codes.golomb_positions import CHUNK_GAPS, GROUP_CHUNKS
from fedcomp.errors import FedcompError
from fedcomp.quantized import Ternary
from tests.entropy.laws import check_round_trip, memory_below, same
from tests.reference import (
    bits_of,
    entropy_bits,
    expected_position_bits,
    interleaved_entries,
    split_body,
    varint_at,
)

CODES: list[EntropyCode[Ternary]] = [GolombTernary(), GolombTernaryInterleaved()]
codes = pytest.mark.parametrize("code", CODES, ids=["split", "interleaved"])

BY_HAND = Ternary(200, np.array([4, 13, 14, 100]), np.array([False, True, True, False]), np.float32(0.5))
SPLIT = "c801 04 0000003f 04 02 1f00 4805 60"
INTERLEAVED = "c801 04 0000003f 05 10440ea8"


def draw(rng: np.random.Generator, n: int, k: int) -> Ternary:
    """Return k independent positions of n, with random signs and magnitude."""
    indices = np.sort(rng.choice(n, k, replace=False)).astype(np.int64)
    magnitude = np.float32(rng.uniform(0.1, 2) * 10.0 ** rng.integers(-40, 38))
    return Ternary(n, indices, rng.random(k) < 0.5, magnitude)


def test_the_split_code_is_the_one_written_by_hand() -> None:
    # r = 4, 8, 0, 85 with b = 4: quotients 0 0 0 111110, remainders 0100 1000 0000 0101, signs 0110
    assert GolombTernary().encode(BY_HAND) == bytes.fromhex(SPLIT)
    assert same(GolombTernary().decode(bytes.fromhex(SPLIT), 200), BY_HAND)


def test_the_interleaved_code_is_the_one_written_by_hand() -> None:
    # b* = 5 at 4/200: quotient, remainder and sign of r = 4, 8, 0, 85
    literal = "0001000" + "0010001" + "0000001" + "110101010" + "00"
    body = GolombTernaryInterleaved().encode(BY_HAND)
    assert bits_of(body[8:]) == literal
    assert body == bytes.fromhex(INTERLEAVED)
    assert same(GolombTernaryInterleaved().decode(bytes.fromhex(INTERLEAVED), 200), BY_HAND)


def test_the_rice_parameter_is_the_papers_and_a_dense_selection_has_no_remainders() -> None:
    densities = (1 / 25, 1 / 100, 1 / 400, 1 / 1000, 1e-4, 1.0, 0.99, 0.5)
    assert [rice_parameter(p) for p in densities] == [4, 6, 8, 9, 13, 0, 0, 0]


def test_the_rice_parameter_is_never_beaten_by_more_than_rounding() -> None:
    for p in np.geomspace(1e-8, 0.9, 200):
        best = min(expected_position_bits(p, b) for b in range(31))
        assert expected_position_bits(p, rice_parameter(p)) <= best * 1.0005


@codes
@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, CHUNK_GAPS - 1, CHUNK_GAPS, CHUNK_GAPS + 1, 3 * CHUNK_GAPS + 5])
def test_random_vectors_come_back_to_the_bit(code: EntropyCode[Ternary], k: int) -> None:
    rng = np.random.default_rng(k)
    for n in {k, k + 1, 2 * k, 100 * k, 10_000 * k}:
        check_round_trip(code, draw(rng, n, k))


@codes
def test_small_selections_come_back_to_the_bit(code: EntropyCode[Ternary]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 300))
        value = draw(rng, n, int(rng.integers(0, n + 1)))
        if not value.indices.size:
            value = Ternary(n, value.indices, value.negative, np.float32(0))
        assert same(code.decode(code.encode(value), n=n), value)


@codes
@pytest.mark.parametrize("k", [GROUP_CHUNKS * CHUNK_GAPS - 1, GROUP_CHUNKS * CHUNK_GAPS, GROUP_CHUNKS * CHUNK_GAPS + 1])
def test_more_chunks_than_a_group_come_back(code: EntropyCode[Ternary], k: int) -> None:
    check_round_trip(code, draw(np.random.default_rng(k), 20 * k, k))


def test_quotients_longer_than_a_stretch_come_back() -> None:
    runs = [0, 8 * STRETCH - 1, 8 * STRETCH, 3, 20 * STRETCH + 5]
    stream = "".join("1" * run + "0" + sign for run, sign in zip(runs, "01101", strict=True))
    n = sum(runs) + len(runs)
    head = write_varint(n) + write_varint(len(runs)) + bytes.fromhex("0000003f 00")
    body = head + np.packbits(np.frombuffer(stream.encode(), np.uint8) - ord("0")).tobytes()
    found = GolombTernaryInterleaved().decode(body, n)
    assert found.indices.tolist() == [sum(runs[: end + 1]) + end for end in range(len(runs))]
    assert found.negative.tolist() == [False, True, True, False, True]


def test_chunks_of_every_density_come_back_each_with_its_own_parameter() -> None:
    rng = np.random.default_rng(1)
    gaps = np.concatenate([rng.geometric(2.0 ** -float(place % 14), CHUNK_GAPS) for place in range(90)])
    indices = np.cumsum(gaps[:-100]) - 1
    value = Ternary(int(indices[-1]) + 1, indices, rng.random(indices.size) < 0.5, np.float32(1))
    body = check_round_trip(GolombTernary(), value)
    assert len(set(split_body(body).rice)) > 10


@codes
def test_the_largest_vector_and_the_longest_gap_come_back(code: EntropyCode[Ternary]) -> None:
    for indices in ([0], [MAX_ENTRIES - 1], [0, MAX_ENTRIES - 1], [MAX_ENTRIES - 2, MAX_ENTRIES - 1]):
        value = Ternary(MAX_ENTRIES, np.array(indices), np.ones(len(indices), np.bool_), np.float32(1))
        assert len(check_round_trip(code, value)) < 40


@codes
def test_a_vector_too_long_to_encode_is_refused(code: EntropyCode[Ternary]) -> None:
    with pytest.raises(ValueError, match="2147483649 entries; .* 2147483648"):
        code.encode(Ternary(MAX_ENTRIES + 1, np.array([0]), np.array([False]), np.float32(1)))


@codes
def test_nothing_kept_takes_the_bytes_of_n_and_a_zero(code: EntropyCode[Ternary]) -> None:
    nothing = Ternary(200, np.empty(0, np.int64), np.empty(0, np.bool_), np.float32(0))
    assert code.encode(nothing).hex() == "c80100"
    assert same(code.decode(bytes.fromhex("c80100")), nothing)


def test_independent_decoders_find_the_same_entries() -> None:
    rng = np.random.default_rng(2)
    for n, k in ((50, 50), (3000, 700), (100_000, 1500)):
        value = draw(rng, n, k)
        expected = dict(zip(value.indices.tolist(), value.sparse().values.tolist(), strict=True))
        assert split_body(GolombTernary().encode(value)).entries() == expected
        assert interleaved_entries(GolombTernaryInterleaved().encode(value)) == (n, expected)


@pytest.mark.parametrize("inverse", [25, 100, 400])
def test_position_bits_of_independent_masks_are_the_formulas(inverse: int) -> None:
    n, p = 1_000_000, 1 / inverse
    rng = np.random.default_rng(inverse)
    split = interleaved = entries = 0
    for _ in range(6):
        indices = np.flatnonzero(rng.random(n) < p)
        value = Ternary(n, indices, rng.random(indices.size) < 0.5, np.float32(1))
        fields = split_body(GolombTernary().encode(value))
        split += 8 * (len(fields.quotients) + len(fields.remainders))
        body = GolombTernaryInterleaved().encode(value)
        head = varint_at(body, varint_at(body, 0)[1])[1] + 5
        interleaved += 8 * (len(body) - head) - indices.size
        entries += indices.size
    expected = expected_position_bits(p, rice_parameter(p))
    assert split / entries == pytest.approx(expected, rel=0.005)
    assert interleaved / entries == pytest.approx(expected, rel=0.005)


@codes
@pytest.mark.parametrize("inverse", [25, 100, 400])
def test_a_whole_body_is_within_a_percent_of_the_entropy(code: EntropyCode[Ternary], inverse: int) -> None:
    n = 1_000_000
    for seed in range(3):
        body = code.encode(draw(np.random.default_rng(seed), n, n // inverse))
        assert 8 * len(body) <= 1.01 * entropy_bits(n, n // inverse)


def test_an_uneven_selection_takes_less_split_than_interleaved() -> None:
    rng = np.random.default_rng(3)
    dense, sparse = np.flatnonzero(rng.random(100_000) < 0.2), np.flatnonzero(rng.random(900_000) < 0.001)
    indices = np.concatenate([dense, sparse + 100_000])
    value = Ternary(1_000_000, indices, np.zeros(indices.size, np.bool_), np.float32(1))
    assert len(GolombTernary().encode(value)) < 0.85 * len(GolombTernaryInterleaved().encode(value))


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("c801 04 0000003f 20 02 1f00 4805 60", "32; .* 31"),
        ("c801 04 00000000 04 02 1f00 4805 60", "magnitude of 0.0; .* 0"),
        ("c801 04 000000bf 04 02 1f00 4805 60", "magnitude of -0.5; .* 0"),
        ("c801 04 0000807f 04 02 1f00 4805 60", "magnitude of inf; .* 0"),
        ("c801 04 0000c07f 04 02 1f00 4805 60", "magnitude of nan; .* 0"),
        ("03 04 0000003f 04 02 1f00 4805 60", "4 kept entries of 3 in 13 bytes"),
        ("ffff03 e807 0000003f 04 02 1f00 4805 60", "1000 kept entries of 65535 in 16 bytes"),
        ("8180808008 04 0000003f 04 02 1f00 4805 60", "2147483649 entries; .* 2147483648"),
        ("64 04 0000003f 04 02 1f00 4805 60", "100 in a vector of 100"),
        ("14 04 0000003f 04 02 1f00 4805 60", "20 entries"),
        ("c801 04 0000003f 04 02 1f01 4805 60", "2 bytes .* 4 .* 9 bits"),
        ("c801 04 0000003f 04 03 1f0000 4805 60", "3 bytes .* 4 .* 9 bits"),
        ("c801 04 0000003f 04 7f 1f00 4805 60", "127 bytes .* 4 gaps within 200"),
        ("c801 04 0000003f 04 02 1fff 4805 60", "3 .* 4"),
        ("c801 04 0000003f 04 02 1f00 4805 61", "0x61"),
        ("c801 04 0000003f 04 02 1f00 4805 60 00", "1 bytes"),
        ("c801 04 0000003f 04 02 1f00 4805", "0 bytes .* 1"),
        ("c801 03 0000003f 03 02 1f00 4881 60", "2 bytes .* 3 .* 3 bits"),
        ("c801 03 0000003f 03 01 00 4881 60", "0x81"),
        ("c801 04 0000003f", "0 bytes .* 1"),
        ("c801 04 0000", "2 bytes .* 4"),
        ("c801 00 00", "1 bytes"),
        ("04 04 0000003f 04 01 00 0000 00", "2 bytes of remainders; 4 gaps within 4 entries take 12 bits"),
    ],
)
def test_a_split_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        GolombTernary().decode(bytes.fromhex(body))


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("c801 04 0000003f 07 10440ea8", "7 for 4 of 200 entries; .* 6"),
        ("c801 04 0000003f 05 10440ea9", "0xa9"),
        ("c801 04 0000003f 05 10440ea800", "1 bytes"),
        ("c801 04 0000003f 05 10440e", "3 gaps .* 4"),
        ("c801 04 0000003f 05", "0 gaps .* 4"),
        ("c801 04 0000003f 05 ffffffff", "0 gaps .* 4"),
        ("c801 04 0000003f", "0 bytes .* 1"),
        ("64 04 0000003f 05 10440ea8", "100 in a vector of 100"),
        ("3f 04 0000003f 05 10440ea8", "63 entries"),
        ("c801 04 0000003f 05 10440ea8 0000000000", "9 bytes .* 4 within 200"),
    ],
)
def test_an_interleaved_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        GolombTernaryInterleaved().decode(bytes.fromhex(body))


def test_interleaved_entries_take_little_more_memory_than_their_positions() -> None:
    n = 1 << 18
    body = write_varint(n) + write_varint(n) + bytes.fromhex("0000003f") + bytes([1]) + bytes(3 * n // 8)
    with memory_below(5 * 4 * n):
        found = GolombTernaryInterleaved().decode(body, n)
    assert found.indices.size == n


@codes
def test_ten_bytes_that_claim_two_thousand_million_entries_cost_nothing(code: EntropyCode[Ternary]) -> None:
    claims = [
        write_varint(MAX_ENTRIES) + write_varint(k) + bytes.fromhex("0000003f") for k in (1, 60, 2**20, MAX_ENTRIES)
    ]
    rest = [
        b"",
        b"\0",
        b"\x1f" * 3,
        b"\0" * 40,
        b"\x1f" + write_varint(2**28),
        b"\0" + write_varint(2**40) + b"\xff" * 20,
    ]
    with memory_below(200_000):
        for body in (claim + end for claim in claims for end in rest):
            with suppress(FedcompError):
                code.decode(body)
