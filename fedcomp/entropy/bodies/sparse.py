"""Codecs 4, 5 and 6: kept entries with one value each, with few magnitudes, or at positions drawn from a seed."""

import struct
from dataclasses import dataclass

import numpy as np

from fedcomp.core import Vector
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet, positions, values
from fedcomp.errors import CorruptError
from fedcomp.quantized import NUM_SEEDS, Seeded, Sparse, SparseLevels, geometric, seeded_indices

LISTED, GEOMETRIC = range(2)
MAX_LEVELS = 256
SERIES = struct.Struct("<fd")
"""The first magnitude and the base; the base is a float64, so that the receiver divides as the sender does."""
SEED = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class SparseValues(positions.ChosenPositions):
    """Each value in the smallest format that holds it.  `positions` is the encoder's choice; any instance decodes."""

    def encode(self, value: Sparse, /) -> bytes:
        """Return the body: n, k, positions (`positions.py`), values (`values.py`)."""
        begin = head.write(value.n, value.indices.size)
        return begin + positions.write(value.indices, value.n, self.positions) + values.write(value.values)

    def decode(self, value: bytes, /, n: int | None = None) -> Sparse:
        """Return the sparse vector; refuse values that are NaN or infinite."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        indices, entries = positions.read(reader, total, k), values.read(reader, k)
        reader.end()
        return Sparse(total, indices, entries)


@dataclass(frozen=True, slots=True)
class SparseLevelsCode(positions.ChosenPositions):
    """Sparse levels.  `positions`, one of `positions.CHOICES`, is the encoder's choice; any instance decodes."""

    def encode(self, value: SparseLevels, /) -> bytes:
        """Return the body: n, k, the magnitudes, positions, signs and, if there are two magnitudes or more, levels."""
        k, count = value.indices.size, value.magnitudes.size
        begin = head.write(value.n, k)
        if not k:
            return begin
        if count > MAX_LEVELS:
            raise ValueError(f"{count} magnitudes; at most {MAX_LEVELS} can be encoded")
        parts = [begin, _write_magnitudes(value.magnitudes, value.base)]
        parts += [positions.write(value.indices, value.n, self.positions), np.packbits(value.negative).tobytes()]
        return b"".join((*parts, alphabet.write(value.levels, count) if count > 1 else b""))

    def decode(self, value: bytes, /, n: int | None = None) -> SparseLevels:
        """Return the sparse levels."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        magnitudes, base = _read_magnitudes(reader) if k else (np.empty(0, np.float32), 0.0)
        indices = positions.read(reader, total, k)
        negative = reader.flags(k, "signs")
        many = magnitudes.size > 1
        levels = alphabet.read(reader, k, magnitudes.size) if many else np.zeros(k, np.uint8)
        reader.end()
        return SparseLevels(total, indices, negative, levels, magnitudes, base)


def _write_magnitudes(magnitudes: Vector, base: float) -> bytes:
    count = magnitudes.size
    if base > 1 and np.array_equal(geometric(magnitudes[0], base, count), magnitudes):
        return bytes([GEOMETRIC, count - 1]) + SERIES.pack(magnitudes[0], base)
    return bytes([LISTED, count - 1]) + magnitudes.astype("<f4", copy=False).tobytes()


def _read_magnitudes(reader: ByteReader) -> tuple[Vector, float]:
    """Return the magnitudes, finite and above 0, and the base of their series, or 0."""
    form, count = reader.byte("form of the magnitudes"), reader.byte("number of magnitudes") + 1
    base = 0.0
    if form == LISTED:
        magnitudes = reader.array("<f4", count, "magnitudes").astype(np.float32)
    elif form == GEOMETRIC:
        first, base = reader.unpack(SERIES, "magnitudes")
        if not 1 < base < np.inf:
            raise CorruptError(f"magnitudes of base {base}; it is finite and above 1")
        magnitudes = geometric(np.float32(first), base, count)
    else:
        raise CorruptError(f"magnitudes in form {form}; {LISTED} and {GEOMETRIC} are known")
    if not (np.isfinite(magnitudes) & (magnitudes > 0)).all():
        raise CorruptError("a magnitude is not finite and above 0")
    return magnitudes, base


@dataclass(frozen=True, slots=True)
class SeededValues:
    """The values, and the seed of their positions: the random mask of Konečný et al., arXiv:1610.05492, section 2."""

    def encode(self, value: Seeded, /) -> bytes:
        """Return the body: n, k, seed, values (`values.py`)."""
        k = value.values.size
        begin = head.write(value.n, k)
        return begin + SEED.pack(value.seed % NUM_SEEDS) + values.write(value.values) if k else begin

    def decode(self, value: bytes, /, n: int | None = None) -> Seeded:
        """Return the seeded vector.  Positions are drawn only after the values were read."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        if not k:
            return Seeded(total, 0, np.empty(0, np.int64), np.empty(0, np.float32))
        (seed,) = reader.unpack(SEED, "seed")
        entries = values.read(reader, k)
        reader.end()
        return Seeded(total, seed, seeded_indices(total, k, seed), entries)
