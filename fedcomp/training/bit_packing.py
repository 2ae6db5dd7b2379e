"""Integers in memory as bits: each integer takes as many bits as the largest one needs.

This is only for memory, not for files or messages: the bytes are those of a little-endian machine.
"""

import torch
from torch import Tensor
from torch.nn import functional

LANES = ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF))
"""A 64-bit word holds pairs of lanes of this many bits; the mask selects the lower lane of each pair."""


def pack_bits(codes: Tensor, width: int) -> list[Tensor]:
    """Return integers (n,) from 0 to 2^width - 1 as bytes: the eight low bits of all, then the next eight bits, and so on.

    `width` is at most 31.  A part of w bits takes ceil(n / 8) w bytes: eight codes become w bytes, the first code in the lowest
    bits.
    """
    planes = codes.view(torch.uint8).view(len(codes), -1)  # the low bytes come first
    return [_squeeze(planes[:, low // 8], min(8, width - low)) for low in range(0, width, 8)]


def unpack_bits(packed: list[Tensor], width: int, count: int) -> Tensor:
    """Return the `count` integers of `pack_bits`: uint8 for up to 8 bits, int32 for more."""
    if len(packed) == 1:
        return _spread(packed[0], width)[:count]
    planes = packed[0].new_zeros(count, 4)
    for place, plane in enumerate(packed):
        planes[:, place] = _spread(plane, min(8, width - 8 * place))[:count]
    return planes.view(torch.int32).view(count)


def _squeeze(codes: Tensor, width: int) -> Tensor:
    padded = functional.pad(codes, (0, -len(codes) % 8)) if len(codes) % 8 else codes.contiguous()
    if width == 8:
        return padded
    words = padded.view(torch.int64)
    for lane, low in LANES:  # push the used bits of the upper lane next to those of the lower one
        words = (words & low) | ((words & ~low) >> (lane - lane * width // 8))
    # `reshape` alone would return a view for one bit, which keeps all eight bytes of each word in memory.
    return words.view(torch.uint8).view(-1, 8)[:, :width].contiguous().view(-1)


def _spread(packed: Tensor, width: int) -> Tensor:
    if width == 8:
        return packed
    words = functional.pad(packed.view(-1, width), (0, 8 - width)).view(-1).view(torch.int64)
    for lane, _ in reversed(LANES):
        used = lane * width // 8
        low = sum((2**used - 1) << place for place in range(0, 64, 2 * lane))
        words = (words & low) | ((words & ~low) << (lane - used))
    return words.view(torch.uint8)
