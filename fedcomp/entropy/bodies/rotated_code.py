"""Levels of rotated vectors at a fixed width: by design they are nearly equally likely, so entropy coding gains little."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import (
    MAX_BITS,
    MAX_SCALE,
    WIDTH_GROUP,
    Rotated,
    Rotation,
    rotated_count,
    rotated_indices,
    wide_blocks,
)

HEAD = struct.Struct("<Qf")
"""Seed, bits."""
LAST = np.uint64(0x0101010101010101)
"""The last bits of a group of levels, read as one word."""


@dataclass(frozen=True, slots=True)
class RotatedBits:
    """Levels of floor(bits) bits, at least one, and one bit more in each group that the seed selects.  Codec 8.

    Vargaftik et al., ICML 2022, send the same content: bits, scales and the seed.
    """

    def encode(self, value: Rotated, /) -> bytes:
        """Return the body: n, seed, bits, scales, the common bits of all levels, and the additional bits of wide groups."""
        parts = [head.write(value.n), HEAD.pack(value.seed, value.bits)]
        parts.append(value.scales.astype("<f4", copy=False).tobytes())
        levels, last = _split(value)
        parts += (packing.write(levels[part], _width(value.bits)) for part in block_slices(levels.size, packing.BLOCK))
        return b"".join((*parts, last))

    def decode(self, value: bytes, /, n: int | None = None) -> Rotated:
        """Return the rotated vector.  Takes memory, and draws random numbers, for no more levels than the body holds."""
        reader = ByteReader(value)
        total = head.read_n(reader, n)
        if not total:
            raise CorruptError("a body of 0 entries; at least 1 is needed")
        seed, bits = reader.unpack(HEAD, "seed and bits")
        if not 0 < bits <= MAX_BITS:
            raise CorruptError(f"{bits} bits an entry; above 0 and at most {MAX_BITS} are allowed")
        rotation, width = Rotation(seed, rotated_count(bits, total)), _width(bits)
        places = rotation.places
        scales = reader.array("<f4", rotation.num_chunks, "scales").astype(np.float32)
        if not (scales.view(np.uint32) < MAX_SCALE.view(np.uint32)).all():
            raise CorruptError(f"a scale that is negative, NaN or {MAX_SCALE} and more")
        octets = reader.bits(places * width, "levels")
        levels = np.zeros(-(-places // WIDTH_GROUP) * WIDTH_GROUP, np.uint8)
        for part, block in packing.read_blocks(octets, width, places):
            levels[part] = block
        _join(levels, reader.take(reader.left, "last bits"), bits, rotation)
        if levels[places:].any():
            raise CorruptError("last bits: the padding bits are not zero")
        indices = rotated_indices(seed, total, rotation.n) if bits < 1 else None
        return Rotated(total, seed, bits, scales, levels[:places], indices)


def _width(bits: float) -> int:
    """Return the number of bits that every level has."""
    return max(1, int(bits))


def _split(value: Rotated) -> tuple[NDArray[np.uint8], bytes]:
    """Return the levels without the last bits of wide groups, and these last bits, one byte per group."""
    places = value.levels.size
    last: list[bytes] = []
    levels = np.zeros(-(-places // WIDTH_GROUP) * WIDTH_GROUP, np.uint8)
    levels[:places] = value.levels
    for groups, wide in _wide_groups(levels, value.bits, value.rotation):
        picked = groups[wide]
        last.append(np.packbits((picked & LAST).view(np.uint8)).tobytes())
        groups[wide] = (picked & ~LAST) >> np.uint64(1)
    return levels[:places], b"".join(last)


def _join(levels: NDArray[np.uint8], last: NDArray[np.uint8], bits: float, rotation: Rotation) -> None:
    """Append their last bits to the levels of wide groups; `last` holds all of these bits."""
    offset = 0
    for groups, wide in _wide_groups(levels, bits, rotation):
        count = int(np.count_nonzero(wide))
        if last.size < offset + count:
            raise TruncatedError(f"{last.size} bytes of last bits; {offset + count} groups or more have some")
        groups[wide] = groups[wide] << np.uint64(1) | np.unpackbits(last[offset : offset + count]).view(np.uint64)
        offset += count
    if offset != last.size:
        raise CorruptError(f"{last.size} bytes of last bits; {offset} groups have some")


def _wide_groups(
    levels: NDArray[np.uint8], bits: float, rotation: Rotation
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.bool_]]]:
    """Yield (groups, which of them are wide) of each block of `levels`, in whole groups; nothing if all widths are equal."""
    for places, wide in wide_blocks(rotation.seed, bits, rotation):
        if wide is not None:
            flags = wide[::WIDTH_GROUP]
            yield levels[places.start : places.start + flags.size * WIDTH_GROUP].view(np.uint64), flags
