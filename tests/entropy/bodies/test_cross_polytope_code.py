"""Vertices at a fixed width: by hand, back and forth, their size, and hostile bodies."""

from contextlib import suppress

import numpy as np
import pytest

from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.entropy import MAX_ENTRIES, CrossPolytopeCode
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import FedcompError
from fedcomp.quantize import NearestVertex
from fedcomp.quantized import CrossPolytope, Rotation
from tests.entropy.laws import check_round_trip, memory_below, same

CODE = CrossPolytopeCode()
BLOCK = 1 << 16
HEAD = "06 0400000000000000 0a"
BODY = f"{HEAD} 10 003f a0"
RATES = [2e-3, 0.03, 0.1, 0.25, 0.3, 0.5, 0.75]


def quantized(bits: float, n: int) -> CrossPolytope:
    value = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    return NearestVertex(bits).quantize(CompensatedUpdate(value, context=EncodeContext(n)))


def test_two_groups_are_the_code_written_by_hand() -> None:
    # groups of four in a chunk of eight; the third place with a minus, and the first with a plus
    value = CrossPolytope(
        Rotation(4, 6, 1024), np.array([16], np.uint8), np.array([0.5], np.float32), np.array([5, 0], np.uint16)
    )
    assert CODE.encode(value) == bytes.fromhex(BODY)
    assert same(CODE.decode(bytes.fromhex(BODY), 6), value)
    assert value.dense().tolist() == [-0.5, -0.5, 0, 0, 0.5, 0]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 65, 1000, 5001, 2 * BLOCK - 1, 4 * BLOCK + 77])
@pytest.mark.parametrize("bits", RATES)
def test_symbols_come_back_to_the_bit(bits: float, n: int) -> None:
    value = quantized(bits, n)
    body = check_round_trip(CODE, value)
    least = sum(24 + int(d).bit_length() for d in value.rotation.chunk_sizes())
    assert len(body) <= 14 + max(bits * n, least) / 8 + 16


def test_a_chunk_of_scale_zero_takes_no_symbols() -> None:
    value = np.random.default_rng(0).standard_normal(4 * BLOCK).astype(np.float32)
    value[:BLOCK] = 0
    for bits in RATES:
        body = check_round_trip(CODE, NearestVertex(bits).quantize(CompensatedUpdate(value, context=EncodeContext(1))))
        assert not CODE.decode(body).dense()[:BLOCK].any()


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("00 0400000000000000 0a 10 003f a0", "0 entries; at least 1"),
        ("8180808008 0400000000000000 0a 10", "2147483649 entries; .* 2147483648"),
        ("06 04000000", "4 bytes .* 9"),
        ("06 0400000000000000 09 10 003f a0", r"chunks of 2\^9 entries; 1024 to 32768"),
        ("06 0400000000000000 10 10 003f a0", r"chunks of 2\^16 entries; 1024 to 32768"),
        ("06 0400000000000000 ff 10 003f a0", r"chunks of 2\^255 entries; 1024 to 32768"),
        (HEAD, "rates: 0 bytes .* 1"),
        (f"{HEAD} e1 003f a0", "rate of 225; at most 224"),
        (f"{HEAD} 10 00", "scales: 1 bytes .* 2"),
        (f"{HEAD} 10 00bf a0", "1.66[0-9]*e.35"),
        (f"{HEAD} 10 0080 a0", "1.66[0-9]*e.35"),
        (f"{HEAD} 10 c07f a0", "1.66[0-9]*e.35"),
        (f"{HEAD} 10 003f", "0 bytes of symbols; .* need 1"),
        (f"{HEAD} 10 003f a0 00", "2 bytes of symbols; .* need 1"),
        (f"{HEAD} 10 0000 a0", "1 bytes of symbols; .* need 0"),
        (f"{HEAD} 10 003f a1", "symbols: .* 0xa1"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        CODE.decode(bytes.fromhex(body))


def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    fillings = (b"", b"\0" * 13, b"\xd0" * 300)
    bodies = [write_varint(n) + b"\1" * 8 + b"\x0f" + rest for n in (1000, 2**20, MAX_ENTRIES) for rest in fillings]
    with memory_below(500_000):
        for body in bodies:
            with suppress(FedcompError):
                CODE.decode(body)


def test_entries_that_cost_next_to_nothing_are_refused_unless_they_are_needed() -> None:
    body = CODE.encode(quantized(2e-3, 64 * BLOCK))
    with pytest.raises(FedcompError, match="4194304 entries in"):
        CODE.decode(body)
    assert CODE.decode(body, 64 * BLOCK).n == 64 * BLOCK


def test_decoding_takes_memory_for_its_symbols() -> None:
    n = 16 * BLOCK
    for bits in (0.03, 0.3, 0.75):
        body = CODE.encode(quantized(bits, n))
        with memory_below(12 * len(body) + 600_000):
            CODE.decode(body, n)


def test_a_vector_too_long_to_encode_is_refused() -> None:
    value = CrossPolytope(
        Rotation(0, MAX_ENTRIES + 1, 1024), np.zeros(1, np.uint8), np.zeros(1, np.float32), np.empty(0, np.uint16)
    )
    with pytest.raises(ValueError, match="a vector of 2147483649 entries; at most 2147483648 can be encoded"):
        CODE.encode(value)
