"""One bit an entry: the mean of the entries above zero, or of those below."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.buckets import midpoints, tensor_blocks
from fedcomp.quantized import LINEAR, Levels, Scale


@dataclass(frozen=True, slots=True)
class OneBit:
    """Replace each entry by the mean of the entries on its side of zero, for each tensor; zero counts as above.

    Seide, Fu, Droppo, Li, Yu, Interspeech 2014, section 3: threshold 0, and the reconstruction values of least error.
    A tensor whose entries are all on one side has one value.
    """

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return a bit for each entry.  Raises `ValueError` if an entry is NaN or infinite."""
        sizes = np.array(value.sizes)
        levels = np.empty(value.n, np.uint8)
        above, below, count = np.zeros((3, sizes.size))
        for tensor, entries, part in tensor_blocks(value):
            count[tensor] += np.count_nonzero(np.greater_equal(part, 0, out=levels[entries].view(np.bool_)))
            above[tensor] += np.maximum(part, 0).sum(dtype=np.float64)
            below[tensor] += np.minimum(part, 0).sum(dtype=np.float64)
        high, low = above / np.maximum(count, 1), below / np.maximum(sizes - count, 1)
        offsets, scales = midpoints(np.where(count < sizes, low, high), np.where(count > 0, high, low))
        return Levels(levels, Scale(LINEAR, 2), scales, offsets, value.sizes)
