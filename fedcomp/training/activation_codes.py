"""Error-bounded codes of activations: few bits an entry, exact zeros and signs (Jin et al., VLDB 15(4) 2022, section 4)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fedcomp.training.bit_packing import pack_bits, unpack_bits

MAX_WIDTH = 16
"""Entries that need wider codes are saved unchanged."""
CPU_CHUNK, GPU_CHUNK = 1 << 16, 1 << 24
"""Entries that are coded at once: temporary tensors fit a CPU's cache; a GPU takes few large steps."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics on which the codes of a tensor depend: extremes, the number of nonzero entries, and their RMS."""

    least: float
    most: float
    nonzero: float
    rms: float

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(-self.least, self.most)


def statistics(x: Tensor) -> Statistics:
    """Return the statistics of a tensor with at least one entry, in one transfer from its device; NaN passes through."""
    found = [*x.aminmax(), x.count_nonzero(), norm(x)]
    least, most, nonzero, length = map(float, torch.stack([each.to(_precision(x.dtype)) for each in found]).cpu())
    return Statistics(least, most, nonzero, length / math.sqrt(max(1, nonzero)))


def norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm of a tensor, summed in at least 32 bits."""
    return cast("Tensor", torch.linalg.vector_norm(x, dtype=_precision(x.dtype)))


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """Which of `count` entries are chosen, a bit for each."""

    count: int
    chunks: tuple[Tensor, ...]

    @classmethod
    def of(cls, chosen: Iterator[Tensor]) -> "ChosenEntries":
        """Return the bitmap of the chunks of a tensor of bools."""
        pairs = [(len(each), pack_bits(each.to(torch.uint8), 1)[0]) for each in chosen]
        return cls(sum(count for count, _ in pairs), tuple(bits for _, bits in pairs))

    def __iter__(self) -> Iterator[Tensor]:
        left = self.count
        for bits in self.chunks:
            count = min(left, 8 * len(bits))
            yield unpack_bits([bits], 1, count).bool()
            left -= count

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return sum(bits.nbytes for bits in self.chunks)


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of a tensor (n,): of all entries, 0 for a zero, or of the entries that `nonzero` chooses.

    Without signs, a code is k, the magnitude over `2 bound` rounded down.  With signs it is 2 k + 1 for a negative entry and
    2 k otherwise.  It represents the magnitude ``(2 k + 1) bound``, at most `largest`.  Codes of all entries are greater by 1.
    """

    count: int
    dtype: torch.dtype
    bound: float
    largest: float
    signed: bool
    width: int
    nonzero: ChosenEntries | None
    chunks: tuple[list[Tensor], ...]
    device: torch.device

    def restore(self) -> Tensor:
        """Return the tensor (n,); an entry differs by at most `bound`, plus the rounding to its dtype."""
        x = torch.zeros(self.count, dtype=self.dtype, device=self.device)
        masks = iter(self.nonzero) if self.nonzero is not None else None
        for part, packed in zip(chunks(x), self.chunks, strict=True):
            mask = None if masks is None else next(masks)
            count = len(part) if mask is None else int(mask.sum())
            codes = unpack_bits(packed, self.width, count)
            if mask is None:
                part.copy_(self._values(codes.clamp(min=1) - 1).masked_fill_(codes == 0, 0))
            else:
                part.masked_scatter_(mask, self._values(codes))
        return x

    def _values(self, codes: Tensor) -> Tensor:
        steps = (codes >> 1 if self.signed else codes).to(_precision(self.dtype))
        magnitudes = steps.mul_(2 * self.bound).add_(self.bound).clamp_(max=self.largest)
        if self.signed:
            magnitudes = torch.where((codes & 1).bool(), -magnitudes, magnitudes)
        return magnitudes.to(self.dtype)

    @property
    def nbytes(self) -> int:
        """The size in bytes, bitmap included."""
        own = sum(plane.nbytes for packed in self.chunks for plane in packed)
        return own + (0 if self.nonzero is None else self.nonzero.nbytes)


def encode(x: Tensor, bound: float, found: Statistics, nonzero: ChosenEntries | None = None) -> Codes | None:
    """Return the codes of a floating-point tensor (n,) in the smaller of two forms; None if they would save nothing.

    `found` are its statistics.  `nonzero` is the bitmap of its nonzero entries if there already is one; sharing it costs
    nothing.  A tensor with NaN or infinity has no codes.  A tensor whose dtype has no normal number as small as `bound` has
    none either.
    """
    largest, signed = found.largest, found.least < 0
    if not math.isfinite(found.least + found.most + found.rms) or not bound >= torch.finfo(x.dtype).tiny:
        return None
    if largest / bound >= 2.0 ** (MAX_WIDTH + 1):
        return None
    last = int(largest / (2 * bound))
    most = 2 * last + 1 if signed else last
    dense, sparse = (most + 1).bit_length(), max(1, most.bit_length())
    bits_dense = dense * len(x)
    bits_sparse = sparse * found.nonzero + (0 if nonzero is not None else len(x))
    use_sparse = bits_sparse < bits_dense
    if min(bits_sparse, bits_dense) >= 8 * x.nbytes or (dense > MAX_WIDTH and not use_sparse):
        return None
    if use_sparse and nonzero is None:
        nonzero = ChosenEntries.of(part != 0 for part in chunks(x))
    masks = iter(nonzero) if use_sparse and nonzero is not None else None
    width, packed = sparse if use_sparse else dense, list[list[Tensor]]()
    for part in chunks(x):
        values = part if masks is None else part.masked_select(next(masks))
        magnitudes = values.to(_precision(x.dtype)).abs()
        # The last step is computed in double precision above, and may be one too many here.
        codes = magnitudes.div_(2 * bound).clamp_(max=last).to(torch.int32 if width > 8 else torch.uint8)
        if signed:
            codes = (codes << 1) | (values < 0)
        if masks is None:
            codes = (codes + 1).masked_fill_(values == 0, 0)
        packed.append(pack_bits(codes, width))
    shared = nonzero if use_sparse else None
    return Codes(len(x), x.dtype, bound, largest, signed, width, shared, tuple(packed), x.device)


def chunks(x: Tensor) -> tuple[Tensor, ...]:
    """Return the views of a tensor (n,) that are coded in order; each but the last has a multiple of 8 entries."""
    size = CPU_CHUNK if x.device.type == "cpu" else GPU_CHUNK
    return tuple(x[first : first + size] for first in range(0, len(x), size))


def _precision(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
