"""Pieces: by hand, back and forth, and damage."""

import numpy as np
import pytest

from fedcomp.core import MAX_TENSORS, CompensatedUpdate, EncodeContext
from fedcomp.entropy import MAX_ENTRIES, GolombTernary, LevelsCode, LowRankRaw, SegmentsCode
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.quantize import Cgx
from fedcomp.quantized import Dense, Levels, Product, Segments, Ternary
from tests.entropy.laws import check_cheap_refusals, check_round_trip, same

CODE = SegmentsCode()
BY_HAND = Segments((Dense(np.array([1], np.float32)), Dense(np.array([-2, 0.5], np.float32))))
BODY = "02 000104 000208 0000803f 000000c0 0000003f"


def random_pieces(rng: np.random.Generator, layers: int = 5) -> Segments:
    """Return pieces as CGX makes them: matrices and biases of random sizes and magnitudes."""
    shapes: list[tuple[int, ...]] = []
    for _ in range(layers):
        shapes.append((int(rng.integers(1, 60)), int(rng.integers(1, 60))))
        shapes.append((int(rng.integers(1, 60)),))
    scales = np.repeat(10.0 ** rng.integers(-3, 3, len(shapes)), [int(np.prod(shape)) for shape in shapes])
    value = (rng.standard_normal(scales.size) * scales).astype(np.float32)
    return Cgx(4, 128, adaptive=True, dense_below=100).quantize(
        CompensatedUpdate(value, context=EncodeContext(shapes=tuple(shapes)))
    )


def test_two_raw_pieces_are_the_ones_written_by_hand() -> None:
    assert CODE.encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(CODE.decode(bytes.fromhex(BODY), 3), BY_HAND)
    assert same(CODE.decode(bytes.fromhex(BODY)), BY_HAND)


def test_a_piece_of_levels_is_its_row_and_the_body_of_its_own_code() -> None:
    levels = Cgx(4, 8).quantize(CompensatedUpdate(np.arange(20, dtype=np.float32))).pieces[0]
    assert isinstance(levels, Levels)
    body = LevelsCode().encode(levels)
    assert CODE.encode(Segments((levels,))) == bytes([1, 1, 20, len(body)]) + body


def test_a_ternary_piece_is_its_row_and_the_body_of_codec_2() -> None:
    ternary = Ternary(1000, np.array([3, 70]), np.array([True, False]), np.float32(0.5))
    body = GolombTernary().encode(ternary)
    pieces = Segments((Dense(np.array([1], np.float32)), ternary))
    encoded = bytes.fromhex("02 000104 02e807") + bytes([len(body)]) + bytes.fromhex("0000803f") + body
    assert CODE.encode(pieces) == encoded
    for found in (CODE.decode(encoded), CODE.decode(encoded, 1001)):
        assert np.flatnonzero(found.dense()).tolist() == [0, 4, 71]
        assert found.dense()[[0, 4, 71]].tolist() == [1, -0.5, 0.5]


def test_a_ternary_piece_may_claim_many_entries_in_few_bytes() -> None:
    ternary = Ternary(2**24, np.array([2**24 - 1]), np.array([True]), np.float32(0.5))
    found = CODE.decode(CODE.encode(Segments((ternary,))))
    assert (found.n, int(np.flatnonzero(found.dense())[0])) == (2**24, 2**24 - 1)


def test_random_pieces_come_back_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    for layers in [1, 2, 5] * 4 + [60]:
        check_round_trip(CODE, random_pieces(rng, layers))


def test_no_pieces_come_back() -> None:
    assert CODE.encode(Segments(())) == b"\0"
    assert CODE.decode(b"\0", 0).n == 0


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("", "0 bytes .* 1"),
        ("07 000104 000208 0000803f 000000c0 0000003f", "18 bytes .* 7 pieces need 3"),
        ("06 000104 000208 0000803f 000000c0 0000003f", "0 entries; at least 1"),
        ("02 030104 000208 0000803f 000000c0 0000003f", "code 3; 0, .* 1, .* 2"),
        ("02 000104 000008 0000803f 000000c0 0000003f", "0 entries; at least 1"),
        ("02 000104 000308 0000803f 000000c0 0000003f", "4 entries; 3"),
        ("02 000204 000108 0000803f 000000c0 0000003f", "4 bytes; 8 for 2"),
        ("02 000104 000209 0000803f 000000c0 0000003f", "12 bytes .* 13"),
        ("02 000104 000207 0000803f 000000c0 0000003f", "7 bytes; 8 for 2"),
        ("02 000104 000208 0000803f 000000c0 0000003f 00", "1 bytes"),
        ("02 000104 000208 0000807f 000000c0 0000003f", "NaN or infinity"),
        ("02 00ff80", "3 bytes .* 2 pieces need 3"),
        ("01 00ff80", "0 bytes .* 1"),
        ("01 000180", "0 bytes .* 1"),
        ("02 0001 8080808001", "0 bytes .* 1"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        CODE.decode(bytes.fromhex(body), 3)


def test_another_length_than_needed_is_refused_before_a_piece_is_read() -> None:
    for n in (0, 2, 4, 2**31):
        with pytest.raises(CorruptError, match=f"3 entries; {n}"):
            CODE.decode(bytes.fromhex(BODY.replace("0000803f", "0000807f")), n)


def test_a_few_bytes_that_claim_much_cost_nothing() -> None:
    row = bytes([1]) + write_varint(2**20) + write_varint(10)
    claims = [
        write_varint(2**40),
        write_varint(1) + bytes([1]) + write_varint(MAX_ENTRIES) + write_varint(4) + b"\0" * 4,
        write_varint(1) + bytes([0]) + write_varint(MAX_ENTRIES) + write_varint(2**33),
        write_varint(1) + bytes([1]) + write_varint(2**62) + write_varint(2**62),
        write_varint(2000) + row * 2000 + (write_varint(2**20) + b"\0" * 7) * 2000,
    ]
    for n in (None, 1000, MAX_ENTRIES):
        check_cheap_refusals(lambda claim, n=n: CODE.decode(claim, n), claims, 1_000_000)  # type: ignore[misc]


def test_a_thousand_equal_pieces_are_refused_if_n_is_not_known() -> None:
    piece = Cgx(4, 1 << 20).quantize(CompensatedUpdate(np.zeros(1 << 20, np.float32))).pieces[0]
    assert isinstance(piece, Levels)
    one = LevelsCode().encode(piece)
    row = bytes([1]) + write_varint(piece.n) + write_varint(len(one))
    body = write_varint(1000) + row * 1000 + one * 1000
    with pytest.raises(CorruptError, match=f"{1000 << 20} entries in {len(body)} bytes"):
        CODE.decode(body)


def test_a_vector_too_long_to_encode_is_refused() -> None:
    half = Dense(np.broadcast_to(np.float32(0), (1 << 30,)))
    with pytest.raises(ValueError, match="3221225472 entries in 3 pieces; .* 2147483648 in 65536"):
        CODE.encode(Segments((half, half, half)))


def test_each_code_refuses_the_pieces_of_the_other() -> None:
    product = Product(9, np.ones((1, 3), np.float32), np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="Product; Dense, Levels or Ternary"):
        CODE.encode(Segments((product,)))
    with pytest.raises(ValueError, match="Ternary; Product or Dense"):
        LowRankRaw().encode(Segments((Ternary(3, np.array([1]), np.array([True]), np.float32(1)),)))


def test_more_than_65536_pieces_are_refused() -> None:
    def body(count: int) -> bytes:
        return write_varint(count) + b"\0\1\4" * count + np.ones(count, "<f4").tobytes()

    assert CODE.decode(body(MAX_TENSORS)).n == MAX_TENSORS
    with pytest.raises(CorruptError, match="65537 pieces; .* 65536"):
        CODE.decode(body(MAX_TENSORS + 1))
    with pytest.raises(ValueError, match="65537 pieces; .* 65536"):
        CODE.encode(Segments((Dense(np.ones(1, np.float32)),) * (MAX_TENSORS + 1)))
