"""Zero, or the tensor's largest magnitude with either sign, at random without bias."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, check_range
from fedcomp.quantize.buckets import ratios, round_at_random, rounding_stream, tensor_blocks
from fedcomp.quantized import LINEAR, Levels, Scale

EQUAL = 1e-12
"""Entries with a variance below this fraction of their mean square are equal, up to rounding."""


@dataclass(frozen=True, slots=True)
class TernGrad:
    """Clip at `clip` standard deviations, 0 for not at all; round each entry at random to -s, 0 or s, s its tensor's scale.

    Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017; their clip is 2.5.  The scale is the largest magnitude
    after clipping, as in the paper: the smaller of `clip` deviations and the largest magnitude.  (The authors' program
    always takes `clip` deviations.)  The deviation is from the mean of the whole tensor, zeros included.  If all entries
    are equal, nothing is clipped.  Unbiased except for the clipping.
    """

    clip: float

    def __post_init__(self) -> None:
        """Refuse a clip out of range."""
        check_range("clip", self.clip, least=0, most=1000, what="standard deviations, 0 for no clipping")

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels, one scale a tensor.  Raises `ValueError` if an entry is NaN or infinite."""
        scales, clipped = self._scales(value)
        draws = rounding_stream(value.context)
        levels = np.empty(value.n, np.uint8)
        for tensor, entries, part in tensor_blocks(value):
            found = ratios(part[None], scales[tensor : tensor + 1])
            if clipped[tensor]:
                np.clip(found, -1, 1, out=found)
            np.add(round_at_random(found, 1, draws.words(part.size)), 1, out=levels[entries], casting="unsafe")
        return Levels(levels, Scale(LINEAR, 3), scales, None, value.sizes)

    def _scales(self, value: CompensatedUpdate) -> tuple[Vector, NDArray[np.bool_]]:
        """Return the scale of each tensor, and whether entries are beyond it."""
        sizes = np.array(value.sizes)
        largest, total, squares = np.zeros((3, sizes.size))
        for tensor, _, part in tensor_blocks(value):
            largest[tensor] = max(largest[tensor], float(part.max()), -float(part.min()))
            if self.clip:
                wide = part.astype(np.float64)
                total[tensor] += wide.sum()
                squares[tensor] += np.square(wide).sum()
        mean, square = total / sizes, squares / sizes
        variance = square - np.square(mean)
        clips = (variance > EQUAL * square) & (self.clip > 0)
        limit = np.sqrt(variance, where=clips, out=np.full(sizes.size, np.inf)) * (self.clip or 1)
        scales = np.minimum(largest, limit).astype(np.float32)
        return scales, scales < largest
