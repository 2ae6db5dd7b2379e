"""Codecs 1 and 7: all entries, as float32 or as levels."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import MAX_TENSORS, Vector
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Dense, Groups, Levels, Scale, group_count

OFFSETS, TENSORS = 4, 8
"""Flags in the byte of the kind: there are offsets; the groups are tensors."""
COUNTS = {LINEAR: range(2, 512), POWERS: range(3, 256, 2), EXPONENTS: range(509, 510)}
"""Kind -> the numbers of levels that it may have."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Four bytes an entry."""

    def encode(self, value: Dense, /) -> bytes:
        """Return the entries, "<f4"."""
        return value.vector.astype("<f4", copy=False).tobytes()

    def decode(self, value: bytes, /, n: int | None = None) -> Dense:
        """Return the entries, float32 (n,); refuse NaN and infinity."""
        if len(value) % 4 or (n is not None and len(value) != 4 * n):
            needed = "a multiple of 4" if n is None else f"{4 * n} for {n} entries"
            raise CorruptError(f"a raw body of {len(value)} bytes; {needed} is needed")
        vector = np.frombuffer(value, "<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise CorruptError("a raw body holds NaN or infinity")
        return Dense(vector)


@dataclass(frozen=True, slots=True)
class LevelsCode:
    """Levels of all entries in the symbol mode with the fewest bytes."""

    def encode(self, value: Levels, /) -> bytes:
        """Return the body: n, kind, number of levels, groups, scales, offsets, levels."""
        if not 1 <= value.n <= MAX_ENTRIES:
            raise ValueError(f"a vector of {value.n} entries; 1 to {MAX_ENTRIES} can be encoded")
        by_tensor = isinstance(value.groups, tuple)
        sizes = (len(value.groups), *value.groups) if isinstance(value.groups, tuple) else (value.groups,)
        if by_tensor and sizes[0] > MAX_TENSORS:
            raise ValueError(f"{sizes[0]} tensors; at most {MAX_TENSORS} can be encoded")
        flags = value.scale.kind | (OFFSETS if value.offsets is not None else 0) | (TENSORS if by_tensor else 0)
        numbers = value.scales if value.offsets is None else np.concatenate((value.scales, value.offsets))
        parts = [write_varint(value.n), bytes([flags]), *map(write_varint, (value.scale.count, *sizes))]
        return b"".join((*parts, numbers.astype("<f4").tobytes(), alphabet.write(value.levels, value.scale.count)))

    def count_pieces(self, value: bytes, /) -> int:
        """Return the number of groups that are tensors; 1 if the groups are buckets, which take no time of their own."""
        reader = ByteReader(value)
        head.read_n(reader, None)
        _, flags = _read_scale(reader)
        return reader.varint("number of tensors") if flags & TENSORS else 1

    def decode(self, value: bytes, /, n: int | None = None) -> Levels:
        """Return the levels.

        A few bytes may represent any number of equal levels.  Without `n`, a body is refused if it claims more than 2^20
        entries and more than 1024 per byte.
        """
        reader = ByteReader(value)
        total = head.read_n(reader, n)
        if not total:
            raise CorruptError("a body of 0 entries; at least 1 is needed")
        head.check_claim(value, total, n)
        scale, flags = _read_scale(reader)
        groups = _read_tensors(reader, total) if flags & TENSORS else _read_bucket(reader)
        count = group_count(total, groups)
        scales = reader.array("<f4", count, "scales").astype(np.float32)
        offsets = reader.array("<f4", count, "offsets").astype(np.float32) if flags & OFFSETS else None
        _check(scale, scales, offsets)
        levels = alphabet.read(reader, total, scale.count)
        reader.end()
        return Levels(levels, scale, scales, offsets, groups)


def _read_scale(reader: ByteReader) -> tuple[Scale, int]:
    """Return the scale and the flags."""
    byte = reader.byte("kind of the levels")
    kind, flags = byte & 3, byte & ~3
    if kind not in COUNTS or flags & ~(OFFSETS | TENSORS):
        raise CorruptError(f"levels of kind {kind} with flags {flags}; the flags {OFFSETS} and {TENSORS} are known")
    count = reader.varint("number of levels")
    if count not in COUNTS[kind]:
        raise CorruptError(f"{count} levels of kind {kind}; {COUNTS[kind][0]} to {COUNTS[kind][-1]} are allowed")
    return Scale(kind, count), flags


def _read_bucket(reader: ByteReader) -> Groups:
    bucket = reader.varint("size of a bucket")
    if not 1 <= bucket <= MAX_ENTRIES:
        raise CorruptError(f"buckets of {bucket} entries; 1 to {MAX_ENTRIES} are allowed")
    return bucket


def _read_tensors(reader: ByteReader, n: int) -> Groups:
    count = reader.varint("number of tensors")
    if not 1 <= count <= min(MAX_TENSORS, reader.left):
        raise CorruptError(f"{count} tensors in {reader.left} bytes; 1 to {MAX_TENSORS}, each of a byte, are allowed")
    sizes = tuple(reader.varint("size of a tensor") for _ in range(count))
    if min(sizes) < 1 or sum(sizes) != n:
        raise CorruptError(
            f"tensors of {min(sizes)} entries or more, {sum(sizes)} in all; 1 or more, {n} in all, are needed"
        )
    return sizes


def _check(scale: Scale, scales: Vector, offsets: Vector | None) -> None:
    """Refuse scales that are negative or not finite, and values beyond float32."""
    if np.signbit(scales).any() or not np.isfinite(scales).all():
        raise CorruptError("a scale is negative or not finite")
    with np.errstate(over="ignore", invalid="ignore"):
        largest = scales * scale.values()[-1]
        if offsets is not None:
            largest += np.abs(offsets)
    if not np.isfinite(largest).all():
        raise CorruptError("scales and offsets give values that are not finite")
