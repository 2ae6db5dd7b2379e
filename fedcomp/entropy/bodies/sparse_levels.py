"""Kept entries of few magnitudes: the magnitudes, positions, signs, and which magnitude each entry has."""

import struct
from dataclasses import dataclass

import numpy as np

from fedcomp.core import Vector, check_choice
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet, positions
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import SparseLevels, geometric

LISTED, GEOMETRIC = range(2)
MAX_LEVELS = 256
SERIES = struct.Struct("<fd")
"""The first magnitude and the base; the base as a float64, so that the divisions are the sender's."""


@dataclass(frozen=True, slots=True)
class SparseLevelsCode:
    """Sparse levels.  `positions`, "smallest" or one of `positions.KINDS`, is the encoder's choice; any instance decodes."""

    positions: str = positions.SMALLEST

    def __post_init__(self) -> None:
        """Refuse a kind of positions that is not known."""
        check_choice("positions", self.positions, (positions.SMALLEST, *positions.KINDS))

    def encode(self, value: SparseLevels, /) -> bytes:
        """Return the body: n, k, the magnitudes, positions, signs and, where there are two magnitudes or more, levels."""
        k = value.indices.size
        begin = head.put(value.n, k)
        if not k:
            return begin
        count = value.magnitudes.size
        if count > MAX_LEVELS:
            raise ValueError(f"{count} magnitudes; at most {MAX_LEVELS} can be encoded")
        return b"".join(
            (
                begin,
                _put_magnitudes(value.magnitudes, value.base),
                positions.put(value.indices, value.n, self.positions),
                np.packbits(value.negative).tobytes(),
                alphabet.put(value.levels, count) if count > 1 else b"",
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> SparseLevels:
        """Return the symbols."""
        total, k, at = head.take(value, n)
        magnitudes, base = np.empty(0, np.float32), 0.0
        if k:
            magnitudes, base, at = _take_magnitudes(value, at)
        indices, at = positions.take(value, at, total, k)
        signs = -(-k // 8)
        negative = packing.flags(value[at : at + signs], k, "signs")
        levels, at = np.zeros(k, np.uint8), at + signs
        if magnitudes.size > 1:
            levels, at = alphabet.take(value, at, k, magnitudes.size)
        head.check_end(value, at)
        return SparseLevels(total, indices, negative, levels, magnitudes, base)


def _put_magnitudes(magnitudes: Vector, base: float) -> bytes:
    count = magnitudes.size
    if base > 1 and np.array_equal(geometric(magnitudes[0], base, count), magnitudes):
        return bytes([GEOMETRIC, count - 1]) + SERIES.pack(magnitudes[0], base)
    return bytes([LISTED, count - 1]) + magnitudes.astype("<f4", copy=False).tobytes()


def _take_magnitudes(data: bytes, at: int) -> tuple[Vector, float, int]:
    """Return the magnitudes, finite and above 0, their base, and where the next field begins."""
    if len(data) < at + 2:
        raise TruncatedError("the body ends before the magnitudes")
    form, count = data[at], data[at + 1] + 1
    at += 2
    if form not in (LISTED, GEOMETRIC):
        raise CorruptError(f"magnitudes in form {form}; known are {LISTED} and {GEOMETRIC}")
    size = 4 * count if form == LISTED else SERIES.size
    if len(data) < at + size:
        raise TruncatedError(f"{len(data) - at} bytes of magnitudes; {count} need {size}")
    base = 0.0
    if form == LISTED:
        magnitudes = np.frombuffer(data, "<f4", count, at).astype(np.float32)
    else:
        first, base = SERIES.unpack_from(data, at)
        if not 1 < base < np.inf:
            raise CorruptError(f"magnitudes of base {base}; it is finite and above 1")
        magnitudes = geometric(np.float32(first), base, count)
    if not (np.isfinite(magnitudes) & (magnitudes > 0)).all():
        raise CorruptError("a magnitude is not finite and above 0")
    return magnitudes, base, at + size
