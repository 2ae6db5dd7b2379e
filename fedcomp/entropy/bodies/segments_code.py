"""A vector in pieces: a table of what each piece is, and the pieces' bodies one after the other."""

from dataclasses import dataclass
from typing import Any

from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.levels_code import LevelsCode
from fedcomp.entropy.bodies.raw import Raw
from fedcomp.entropy.protocol import MAX_ENTRIES, EntropyCode
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Dense, Levels, Segments

RAW, LEVELS = range(2)
CODES: tuple[EntropyCode[Any], ...] = (Raw(), LevelsCode())
MAX_PIECES = 1 << 16
LEAST = 3
"""Bytes of a row of the table, at least."""

Row = tuple[int, int, int]
"""The code of a piece, its entries, and the bytes of its body."""


@dataclass(frozen=True, slots=True)
class SegmentsCode:
    """Each piece in the code of its kind: float32 as they are, or levels.  Codec 10."""

    def encode(self, value: Segments, /) -> bytes:
        """Return the body: the number of pieces; code, entries and length of each; their bodies."""
        if value.n > MAX_ENTRIES or len(value.pieces) > MAX_PIECES:
            raise ValueError(
                f"a vector of {value.n} entries in {len(value.pieces)} pieces; "
                f"at most {MAX_ENTRIES} in {MAX_PIECES} can be encoded"
            )
        table, bodies = [varint.put(len(value.pieces))], []
        for piece in value.pieces:
            code = RAW if isinstance(piece, Dense) else LEVELS
            body = CODES[code].encode(piece)
            table.append(bytes([code]) + varint.put(piece.n) + varint.put(len(body)))
            bodies.append(body)
        return b"".join(table + bodies)

    def decode(self, value: bytes, /, n: int | None = None) -> Segments:
        """Return the pieces.  Where `n` is not given, a body may claim as many entries as one of `LevelsCode`."""
        rows, at = _table(value)
        total = sum(entries for _, entries, _ in rows)
        head.check_n(total, n)
        head.check_claim(value, total, n)
        needed = sum(length for _, _, length in rows)
        if len(value) - at != needed:
            short = len(value) - at < needed
            raise (TruncatedError if short else CorruptError)(f"{len(value) - at} bytes of pieces; {needed} are needed")
        pieces: list[Levels | Dense] = []
        for code, entries, length in rows:
            pieces.append(CODES[code].decode(value[at : at + length], n=entries))
            at += length
        return Segments(tuple(pieces))


def _table(data: bytes) -> tuple[list[Row], int]:
    """Return the rows of the table, and where the first body begins."""
    count, at = varint.take(data, 0, "the number of pieces")
    if count > MAX_PIECES:
        raise CorruptError(f"{count} pieces; at most {MAX_PIECES}")
    if count > (len(data) - at) // LEAST:
        raise TruncatedError(f"{len(data) - at} bytes; {count} pieces need at least {LEAST} each")
    rows: list[Row] = []
    for _ in range(count):
        if at >= len(data):
            raise TruncatedError("the body ends before the code of a piece")
        code = data[at]
        if code >= len(CODES):
            raise CorruptError(f"a piece in code {code}; it is {RAW}, float32, or {LEVELS}, levels")
        entries, at = varint.take(data, at + 1, "the entries of a piece")
        if not entries:
            raise CorruptError("a piece of no entries; it has one at least")
        length, at = varint.take(data, at, "the length of a piece")
        rows.append((code, entries, length))
    return rows, at
