"""Factors as they are: by hand, back and forth, and what a hostile body can say."""

import tracemalloc

import numpy as np
import pytest

from fedcomp.core.compensated_update import CompensatedUpdate
from fedcomp.core.context import EncodeContext, Shapes
from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies.low_rank_code import MAX_PARTS, LowRankRaw
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError, TruncatedError
from fedcomp.quantize.power_iteration import LowRank
from fedcomp.quantized.low_rank import LowRankFactors, Product
from fedcomp.quantized.vectors import Dense

CODE = LowRankRaw()
LEFT, RIGHT, REST = "0000803f 00000040 00000000", "0000803f 00000000 000080bf", "0000003f"
BODY = "0a 02 01 03 03 00 01" + LEFT + RIGHT + REST
SHAPES: list[Shapes] = [(), ((1000,),), ((10, 100),), ((8,), (16, 4, 3, 3), (16, 10), (256,)), ((31, 31), (39,))]


def symbols(rank: int, shapes: Shapes, n: int = 1000) -> LowRankFactors:
    value = np.random.default_rng(rank).standard_normal(n).astype(np.float32)
    return LowRank(rank).quantize(CompensatedUpdate(value, context=EncodeContext(rank, shapes=shapes)))


def same(one: LowRankFactors, other: LowRankFactors) -> bool:
    if one.n != other.n or len(one.parts) != len(other.parts):
        return False
    for mine, its in zip(one.parts, other.parts, strict=True):
        if isinstance(mine, Product) and isinstance(its, Product):
            pairs = [(mine.left, its.left), (mine.right, its.right)]
        elif isinstance(mine, Dense) and isinstance(its, Dense):
            pairs = [(mine.vector, its.vector)]
        else:
            return False
        if mine.n != its.n or any(a.tobytes() != b.tobytes() or a.shape != b.shape for a, b in pairs):
            return False
    return True


def test_a_matrix_and_an_entry_are_the_code_written_by_hand() -> None:
    left, right = np.array([[1, 2, 0]], np.float32), np.array([[1, 0, -1]], np.float32)
    value = LowRankFactors((Product(9, left, right), Dense(np.array([0.5], np.float32))))
    assert CODE.encode(value) == bytes.fromhex(BODY)
    assert same(CODE.decode(bytes.fromhex(BODY), 10), value)
    assert value.dense().tolist() == [1, 0, -1, 2, 0, -2, 0, 0, 0, 0.5]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_symbols_come_back_to_the_bit(shapes: Shapes, rank: int) -> None:
    value = symbols(rank, shapes)
    body = CODE.encode(value)
    for found in (CODE.decode(body), CODE.decode(body, 1000)):
        assert same(found, value)
        assert found.dense().tobytes() == value.dense().tobytes()


@pytest.mark.parametrize("n", [1, 2, 9, 10, 31, 999, 100003])
def test_vectors_that_do_not_fill_the_last_row_come_back(n: int) -> None:
    value = symbols(1, (), n)
    assert same(CODE.decode(CODE.encode(value), n), value)


def test_a_body_is_as_long_as_its_numbers() -> None:
    assert len(CODE.encode(symbols(2, ((10, 100),)))) == 2 + 1 + 3 + 4 * 2 * (10 + 100)
    assert len(CODE.encode(symbols(2, ((1000,),)))) == 2 + 1 + 3 + 4 * 1000


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("8180808008 00", "a body that claims 2147483649 entries; at most 2147483648"),
        ("0a 818004", "65537 parts; at most 65536"),
        ("0a 02 01 03", "the body ends within the second side of a part"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT, "24 bytes; 2 parts need 28"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT + REST + "00", "29 bytes of numbers; 7 need 28"),
        ("0a 01 01 03 03" + LEFT + RIGHT, "parts of 9 entries; the body is of 10"),
        ("0a 02 01 03 03 00 02" + LEFT + RIGHT + REST * 2, "part 1 has 2 entries of the 1 that are left"),
        ("0a 02 01 03 03 00 00" + LEFT + RIGHT, "part 1 has 0 entries of the 1 that are left"),
        ("0a 01 00 0b" + REST * 11, "part 0 has 11 entries of the 10 that are left"),
        ("02 02 00 01 00 01" + REST * 2, "part 1 goes on as the one before; they are one"),
        ("09 01 01 02 04" + REST * 6, "parts of 8 entries; the body is of 9"),
        ("0a 01 02 03 03" + REST * 12, "part 0 is 3 x 3 of rank 2; 10 entries are left"),
        ("06 01 01 03 03" + LEFT + RIGHT, "part 0 is 3 x 3 of rank 1; 6 entries are left"),
        ("0a 02 01 03 03 00 01" + LEFT + RIGHT + "0000807f", "a body holds NaN or infinity"),
        ("0a 02 01 03 03 00 01" + LEFT + "0000c07f 00000000 000080bf" + REST, "a body holds NaN or infinity"),
        ("0a 02 01 03 03 00 01" + LEFT + "ffff7f7f 00000000 000080bf" + REST, "factors whose product may be 6.8.*"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}$"):
        CODE.decode(bytes.fromhex(body))


@pytest.mark.parametrize("shapes", SHAPES)
def test_every_truncation_and_every_byte_more_is_refused(shapes: Shapes) -> None:
    body = CODE.encode(symbols(2, shapes))
    for length in range(len(body)):
        with pytest.raises((TruncatedError, CorruptError)):
            CODE.decode(body[:length])
    with pytest.raises(CorruptError):
        CODE.decode(body + b"\0")


@pytest.mark.parametrize("n", [0, 9, 11, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a body for 10 entries; {n} are needed"):
        CODE.decode(bytes.fromhex(BODY), n=n)


def test_changed_bytes_are_refused_or_decode_to_a_vector_like_any_other() -> None:
    rng = np.random.default_rng(5)
    bodies = [bytes.fromhex(BODY), *(CODE.encode(symbols(1, shapes)) for shapes in SHAPES)]
    refused = 0
    for _ in range(2000):
        body = bytearray(bodies[rng.integers(len(bodies))])
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(min(len(body), rng.choice([20, len(body)])))] = rng.integers(256)
        try:
            found = CODE.decode(bytes(body))
        except FedcompError:
            refused += 1
            continue
        vector = found.dense()
        assert vector.size == found.n
        assert np.isfinite(vector).all()
    assert 500 < refused < 1900


def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    claims = [varint.put(rank) + varint.put(side) * 2 for rank in (1, 100) for side in (1000, 46340, 2**31, 2**60)]
    tracemalloc.start()
    for n in (10**6, MAX_ENTRIES):
        for count in (1, 1000, MAX_PARTS):
            for claim in [*claims, varint.put(0) + varint.put(n)]:
                for rest in (b"", b"\0" * 300):
                    with pytest.raises(FedcompError):
                        CODE.decode(varint.put(n) + varint.put(count) + claim + rest)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


def test_more_parts_than_can_be_are_refused() -> None:
    value = LowRankFactors((Dense(np.zeros(1, np.float32)),) * (MAX_PARTS + 1))
    with pytest.raises(
        ValueError, match="a vector of 65537 entries in 65537 parts; at most 2147483648 in 65536 can be"
    ):
        CODE.encode(value)
