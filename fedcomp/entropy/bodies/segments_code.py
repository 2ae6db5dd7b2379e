"""Codec 10: a vector in consecutive pieces: a table of the pieces, then their bodies one after the other."""

from dataclasses import dataclass
from typing import Any

from fedcomp.entropy.bits import varint
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.entropy.bodies.levels_code import LevelsCode
from fedcomp.entropy.bodies.raw import Raw
from fedcomp.entropy.protocol import MAX_ENTRIES, EntropyCode
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Dense, Levels, Segments, Ternary

CODES: tuple[tuple[type, EntropyCode[Any]], ...] = ((Dense, Raw()), (Levels, LevelsCode()), (Ternary, GolombTernary()))
"""By number: the pieces that a code is for, and the code."""
MAX_PIECES = 1 << 16
MIN_ROW_BYTES = 3

Row = tuple[int, int, int]
"""The code of a piece, its entries, and the bytes of its body."""


@dataclass(frozen=True, slots=True)
class SegmentsCode:
    """Each piece in the code of its kind: float32, levels, or kept entries of one magnitude."""

    def encode(self, value: Segments, /) -> bytes:
        """Return the body: the number of pieces; code, entries and length of each; their bodies."""
        if value.n > MAX_ENTRIES or len(value.pieces) > MAX_PIECES:
            raise ValueError(
                f"a vector of {value.n} entries in {len(value.pieces)} pieces; "
                f"at most {MAX_ENTRIES} in {MAX_PIECES} can be encoded"
            )
        table, bodies = [varint.write(len(value.pieces))], []
        for piece in value.pieces:
            number = next(number for number, (kind, _) in enumerate(CODES) if isinstance(piece, kind))
            body = CODES[number][1].encode(piece)
            table.append(bytes([number]) + varint.write(piece.n) + varint.write(len(body)))
            bodies.append(body)
        return b"".join(table + bodies)

    def decode(self, value: bytes, /, n: int | None = None) -> Segments:
        """Return the pieces.  Without `n`, a body may claim as many entries as one of `LevelsCode`."""
        reader = ByteReader(value)
        rows = _read_table(reader)
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


def _read_table(reader: ByteReader) -> list[Row]:
    count = reader.varint("number of pieces")
    if count > MAX_PIECES:
        raise CorruptError(f"{count} pieces; at most {MAX_PIECES} are allowed")
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
