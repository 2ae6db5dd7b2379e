"""Levels of rotated entries at a fixed width: they are nearly equally likely by design, and no entropy code would gain much."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import fixed_width, packing, varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import (
    MAX_BITS,
    MAX_SCALE,
    WIDTH_GROUP,
    Rotated,
    chunk_count,
    rotated_count,
    rotated_indices,
    wide_blocks,
)

HEAD = struct.Struct("<Qf")
"""Seed, bits."""
LAST = np.uint64(0x0101010101010101)
"""The last bits of a group of levels, which is looked at as one word."""


@dataclass(frozen=True, slots=True)
class RotatedBits:
    """Rotated symbols as they are: floor(bits) an entry, at least one, and one more in each group that the seed picks.

    Vargaftik et al., ICML 2022, send the same: bits, scales and the seed.
    """

    def encode(self, value: Rotated, /) -> bytes:
        """Return the body: n, seed, bits, scales, the levels without the bits that only some have, those bits."""
        if value.n > MAX_ENTRIES:
            raise ValueError(f"a vector of {value.n} entries; at most {MAX_ENTRIES} can be encoded")
        levels, last = _split(value)
        blocks = (levels[at : at + fixed_width.BLOCK] for at in range(0, levels.size, fixed_width.BLOCK))
        return b"".join(
            (
                varint.put(value.n),
                HEAD.pack(value.seed, value.bits),
                value.scales.astype("<f4", copy=False).tobytes(),
                *fixed_width.write(blocks, _width(value.bits)),
                last,
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> Rotated:
        """Return the symbols; what the seed tells is drawn once the levels are there, so that it is no more than came."""
        total, at = head.take_n(value, n)
        if not total:
            raise CorruptError("a body for no entries; it has one at least")
        if len(value) < at + HEAD.size:
            raise TruncatedError("the body ends within seed and bits")
        seed, rate = HEAD.unpack_from(value, at)
        if not 0 < rate <= MAX_BITS:
            raise CorruptError(f"{rate} bits an entry; above 0 and at most {MAX_BITS}")
        at += HEAD.size
        k, width = rotated_count(rate, total), _width(rate)
        chunks, size = chunk_count(k), fixed_width.size(k, width)
        if len(value) < at + 4 * chunks + size:
            raise TruncatedError(f"{len(value) - at} bytes; {chunks} scales and {k} levels need {4 * chunks + size}")
        scales = np.frombuffer(value, "<f4", chunks, at).astype(np.float32)
        if not (scales.view(np.uint32) < MAX_SCALE.view(np.uint32)).all():
            raise CorruptError(f"a scale that is negative, NaN or {MAX_SCALE} and more")
        at += 4 * chunks
        packing.check_padding(memoryview(value)[at : at + size], k * width, "levels")
        levels = np.zeros(-(-k // WIDTH_GROUP) * WIDTH_GROUP, np.uint8)
        for part, block in fixed_width.read(np.frombuffer(value, np.uint8, size, at), width, k):
            levels[part] = block
        _join(levels, np.frombuffer(value, np.uint8, offset=at + size), seed, rate)
        if levels[k:].any():
            raise CorruptError("last bits: the padding bits are not zero")
        return Rotated(total, seed, rate, scales, levels[:k], rotated_indices(seed, total, k) if rate < 1 else None)


def _width(rate: float) -> int:
    """Return the bits that every entry has."""
    return max(1, int(rate))


def _split(value: Rotated) -> tuple[NDArray[np.uint8], bytes]:
    """Return the levels, those of wide groups without their last bits, and these bits, a byte a group."""
    levels, last = value.levels, []
    for start, wide in wide_blocks(value.seed, value.bits, value.levels.size):
        if wide is None:
            break
        if not start:
            levels = np.zeros(-(-value.levels.size // WIDTH_GROUP) * WIDTH_GROUP, np.uint8)
            levels[: value.levels.size] = value.levels
        groups = levels[start : start + wide.size * WIDTH_GROUP].view(np.uint64)
        picked = groups[wide]
        last.append(np.packbits((picked & LAST).view(np.uint8)).tobytes())
        groups[wide] = (picked & ~LAST) >> np.uint64(1)
    return levels[: value.levels.size], b"".join(last)


def _join(levels: NDArray[np.uint8], last: NDArray[np.uint8], seed: int, rate: float) -> None:
    """Give the wide groups of `levels` their last bits, which are all of `last`."""
    at = 0
    for start, wide in wide_blocks(seed, rate, levels.size):
        if wide is None:
            break
        groups, count = levels[start : start + wide.size * WIDTH_GROUP].view(np.uint64), int(np.count_nonzero(wide))
        if last.size < at + count:
            raise TruncatedError(f"{last.size} bytes of last bits; {at + count} groups or more have some")
        groups[wide] = groups[wide] << np.uint64(1) | np.unpackbits(last[at : at + count]).view(np.uint64)
        at += count
    if at != last.size:
        raise CorruptError(f"{last.size} bytes of last bits; {at} groups have some")
