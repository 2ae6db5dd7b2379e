"""Factors as float32: by hand, back and forth, and damage."""

import numpy as np
import pytest

from fedcomp.core import MAX_TENSORS, CompensatedUpdate, EncodeContext, Shapes
from fedcomp.entropy import MAX_ENTRIES, LowRankRaw
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import FedcompError
from fedcomp.quantize import LowRank
from fedcomp.quantized import Dense, Product, Segments
from tests.entropy.laws import check_cheap_refusals, check_round_trip, same

CODE = LowRankRaw()
LEFT, RIGHT, REST = "0000803f 00000040 00000000", "0000803f 00000000 000080bf", "0000003f"
BODY = "0a 02 01 03 03 00 01" + LEFT + RIGHT + REST
SHAPES: list[Shapes] = [(), ((1000,),), ((10, 100),), ((8,), (16, 4, 3, 3), (16, 10), (256,)), ((31, 31), (39,))]


def factors(rank: int, shapes: Shapes, n: int = 1000) -> Segments:
    value = np.random.default_rng(rank).standard_normal(n).astype(np.float32)
    return LowRank(rank).quantize(CompensatedUpdate(value, context=EncodeContext(rank, shapes=shapes)))


def test_a_matrix_and_an_entry_are_the_code_written_by_hand() -> None:
    left, right = np.array([[1, 2, 0]], np.float32), np.array([[1, 0, -1]], np.float32)
    value = Segments((Product(9, left, right), Dense(np.array([0.5], np.float32))))
    assert CODE.encode(value) == bytes.fromhex(BODY)
    assert same(CODE.decode(bytes.fromhex(BODY), 10), value)
    assert value.dense().tolist() == [1, 0, -1, 2, 0, -2, 0, 0, 0, 0.5]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_factors_come_back_to_the_bit(shapes: Shapes, rank: int) -> None:
    check_round_trip(CODE, factors(rank, shapes))


@pytest.mark.parametrize("n", [1, 2, 9, 10, 31, 999, 100003])
def test_vectors_that_do_not_fill_the_last_row_come_back(n: int) -> None:
    check_round_trip(CODE, factors(1, (), n))


def test_a_body_is_as_long_as_its_numbers() -> None:
    assert len(CODE.encode(factors(2, ((10, 100),)))) == 2 + 1 + 3 + 4 * 2 * (10 + 100)
    assert len(CODE.encode(factors(2, ((1000,),)))) == 2 + 1 + 3 + 4 * 1000


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("8180808008 00", "2147483649 entries; .* 2147483648"),
        ("0a 818004", "65537 .* 65536"),
        ("0a 02 01 03", "0 bytes .* 1"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT, "24 bytes .* 28"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT + REST + "00", "1 bytes"),
        ("0a 01 01 03 03" + LEFT + RIGHT, "9 entries; 10"),
        ("0a 02 01 03 03 00 02" + LEFT + RIGHT + REST * 2, "part 1 has 2 entries; 1 to 1"),
        ("0a 02 01 03 03 00 00" + LEFT + RIGHT, "part 1 has 0 entries; 1 to 1"),
        ("0a 01 00 0b" + REST * 11, "part 0 has 11 entries; 1 to 10"),
        ("02 02 00 01 00 01" + REST * 2, "part 1 .* part 0"),
        ("09 01 01 02 04" + REST * 6, "8 entries; 9"),
        ("0a 01 02 03 03" + REST * 12, "3 x 3 of rank 2; 10"),
        ("06 01 01 03 03" + LEFT + RIGHT, "3 x 3 of rank 1; 6"),
        ("c09a0c 01 8101 c003 c003" + REST * 129 * 896, "part 0 is of rank 129; at most 128"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT + "0000807f", "NaN or infinity"),
        ("0a 02 01 03 03 00 01" + LEFT + "0000c07f 00000000 000080bf" + REST, "NaN or infinity"),
        ("0a 02 01 03 03 00 01" + LEFT + "ffff7f7f 00000000 000080bf" + REST, r"6\.8\S+; at most 3\.39"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        CODE.decode(bytes.fromhex(body))


def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    claims = [write_varint(rank) + write_varint(side) * 2 for rank in (1, 100) for side in (1000, 46340, 2**31, 2**60)]
    bodies = [
        write_varint(n) + write_varint(count) + claim + rest
        for n in (10**6, MAX_ENTRIES)
        for count in (1, 1000, MAX_TENSORS)
        for claim in [*claims, write_varint(0) + write_varint(n)]
        for rest in (b"", b"\0" * 300)
    ]
    check_cheap_refusals(CODE.decode, bodies, 300_000)


def test_more_parts_than_can_be_are_refused() -> None:
    value = Segments((Dense(np.zeros(1, np.float32)),) * (MAX_TENSORS + 1))
    with pytest.raises(ValueError, match="65537 .* 65536"):
        CODE.encode(value)
