"""Codecs 9 and 10: vectors in consecutive pieces, including low-rank matrices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_TENSORS, block_slices
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.dense import LevelsCode, Raw
from fedcomp.entropy.bodies.golomb import GolombTernary
from fedcomp.entropy.protocol import MAX_ENTRIES, EntropyCode
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import MAX_PRODUCT, MAX_RANK, Dense, Levels, Product, Segments, Ternary, worthwhile

CODES: tuple[tuple[type, EntropyCode[Any]], ...] = ((Dense, Raw()), (Levels, LevelsCode()), (Ternary, GolombTernary()))
"""The type of the pieces and their code, by the number of the code."""
MIN_ROW_BYTES = 3

Row = tuple[int, int, int]
"""The code of a piece, its entries, and the bytes of its body."""
Part = tuple[int, int, int, int]
"""Entries, rank, rows, columns; the last three are 0 for entries outside a matrix."""


@dataclass(frozen=True, slots=True)
class SegmentsCode:
    """Each piece in the code of its kind: float32, levels, or kept entries of one magnitude."""

    def encode(self, value: Segments, /) -> bytes:
        """Return the body: the number of pieces; code, entries and length of each; their bodies."""
        if value.n > MAX_ENTRIES or len(value.pieces) > MAX_TENSORS:
            raise ValueError(
                f"a vector of {value.n} entries in {len(value.pieces)} pieces; "
                f"at most {MAX_ENTRIES} in {MAX_TENSORS} can be encoded"
            )
        table, bodies = [write_varint(len(value.pieces))], []
        for piece in value.pieces:
            number = next((number for number, (kind, _) in enumerate(CODES) if isinstance(piece, kind)), None)
            if number is None:
                raise ValueError(f"a piece of type {type(piece).__name__}; Dense, Levels or Ternary is needed")
            body = CODES[number][1].encode(piece)
            table.append(bytes([number]) + write_varint(piece.n) + write_varint(len(body)))
            bodies.append(body)
        return b"".join(table + bodies)

    def count_pieces(self, value: bytes, /) -> int:
        """Return the number of pieces, plus the number of groups in them that are tensors."""
        reader, count = ByteReader(value), 0
        for number, _, length in _read_rows(reader):
            body = reader.take(length, "piece").tobytes()
            count += LevelsCode().count_pieces(body) if CODES[number][0] is Levels else 1
        return count

    def decode(self, value: bytes, /, n: int | None = None) -> Segments:
        """Return the pieces.  Without `n`, a body may claim as many entries as a body of `LevelsCode` may."""
        reader = ByteReader(value)
        rows = _read_rows(reader)
        total = sum(entries for _, entries, _ in rows)
        head.check_n(total, n)
        head.check_claim(value, sum(entries for number, entries, _ in rows if CODES[number][0] is not Ternary), n)
        needed = sum(length for _, _, length in rows)
        if reader.left < needed:
            raise TruncatedError(f"{reader.left} bytes of pieces; {needed} are needed")
        pieces: list[Levels | Dense | Ternary] = []
        for number, entries, length in rows:
            pieces.append(CODES[number][1].decode(reader.take(length, "piece").tobytes(), n=entries))
        reader.end()
        return Segments(tuple(pieces))


def _read_count(reader: ByteReader, what: str) -> int:
    count = reader.varint(f"number of {what}")
    if count > MAX_TENSORS:
        raise CorruptError(f"{count} {what}; at most {MAX_TENSORS} are allowed")
    return count


def _read_rows(reader: ByteReader) -> list[Row]:
    count = _read_count(reader, "pieces")
    if count > reader.left // MIN_ROW_BYTES:
        raise TruncatedError(f"{reader.left} bytes are left; {count} pieces need {MIN_ROW_BYTES} or more each")
    rows: list[Row] = []
    for _ in range(count):
        code = reader.byte("code of a piece")
        if code >= len(CODES):
            raise CorruptError(f"a piece in code {code}; 0, float32, 1, levels, and 2, ternary, are known")
        entries, length = reader.varint("entries of a piece"), reader.varint("length of a piece")
        if not entries:
            raise CorruptError("a piece of 0 entries; at least 1 is needed")
        rows.append((code, entries, length))
    return rows


@dataclass(frozen=True, slots=True)
class LowRankRaw:
    """A table of the parts, then four bytes per number."""

    def encode(self, value: Segments, /) -> bytes:
        """Return the body: n, the number of parts, rank and sides of each, then the numbers of each: left, right."""
        if len(value.pieces) > MAX_TENSORS:
            raise ValueError(f"{len(value.pieces)} parts; at most {MAX_TENSORS} can be encoded")
        table = [head.write(value.n, len(value.pieces))]
        numbers: list[NDArray[np.float32]] = []
        for part in value.pieces:
            if isinstance(part, Product):
                rank, rows = part.left.shape
                table += map(write_varint, (rank, rows, part.right.shape[1]))
                numbers += [part.left, part.right]
            elif isinstance(part, Dense):
                table += map(write_varint, (0, part.n))
                numbers.append(part.vector)
            else:
                raise ValueError(f"a part of type {type(part).__name__}; Product or Dense is needed")
        return b"".join(table + [array.astype("<f4", copy=False).tobytes() for array in numbers])

    def count_pieces(self, value: bytes, /) -> int:
        """Return the number of parts."""
        reader = ByteReader(value)
        head.read_n(reader, None)
        return _read_count(reader, "parts")

    def decode(self, value: bytes, /, n: int | None = None) -> Segments:
        """Return the factors and the entries between the matrices."""
        reader = ByteReader(value)
        table = _read_table(reader, head.read_n(reader, n))
        count = sum(map(_number_count, table))
        numbers = reader.array("<f4", count, "numbers").astype(np.float32)
        reader.end()
        if not all(np.isfinite(numbers[part]).all() for part in block_slices(count)):
            raise CorruptError("a body holds NaN or infinity")
        return Segments(tuple(_parts(table, numbers)))


def _number_count(part: Part) -> int:
    entries, rank, rows, columns = part
    return rank * (rows + columns) if rank else entries


def _read_table(reader: ByteReader, n: int) -> list[Part]:
    """Return the parts; refuse parts that do not have `n` entries together, or more numbers than the bytes that are left."""
    count = _read_count(reader, "parts")
    table: list[Part] = []
    left, numbers = n, 0
    for number in range(count):
        rank, rows = reader.varint("rank"), reader.varint("first side of a part")
        if not rank:
            if not 0 < rows <= left:
                raise CorruptError(f"part {number} has {rows} entries; 1 to {left} are left")
            if table and not table[-1][1]:
                raise CorruptError(f"part {number} continues part {number - 1}; they must be one part")
            part = rows, 0, 0, 0
        else:
            columns = reader.varint("second side of a part")
            if rank > MAX_RANK:
                raise CorruptError(f"part {number} is of rank {rank}; at most {MAX_RANK} is allowed")
            if rows * columns >= left + columns or not worthwhile(rows, columns, rank):
                raise CorruptError(f"part {number} is {rows} x {columns} of rank {rank}; {left} entries are left")
            part = min(rows * columns, left), rank, rows, columns
        table.append(part)
        left -= part[0]
        numbers += _number_count(part)
        if 4 * numbers > reader.left:
            raise TruncatedError(f"{reader.left} bytes are left; {number + 1} parts need {4 * numbers}")
    if left:
        raise CorruptError(f"parts of {n - left} entries; {n} are needed")
    return table


def _parts(table: list[Part], numbers: NDArray[np.float32]) -> Iterator[Product | Dense]:
    start = 0
    for part in table:
        entries, rank, rows, columns = part
        own = numbers[start : start + _number_count(part)]
        start += own.size
        if not rank:
            yield Dense(own)
            continue
        product = Product(entries, own[: rank * rows].reshape(rank, rows), own[rank * rows :].reshape(rank, columns))
        if product.bound > MAX_PRODUCT:
            raise CorruptError(f"factors whose product may be {product.bound:g}; at most {MAX_PRODUCT:g} is allowed")
        yield product
