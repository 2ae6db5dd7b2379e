"""What quantized vectors that yield their entries block by block have in common."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector

Blocks = Iterable[tuple[slice, Vector]]
"""(part, its entries) of consecutive parts; the entries are to be read before the next block."""


def collect(blocks: Blocks, out: Vector) -> Vector:
    """Write the blocks into `out`, float32 (n,), and return it."""
    for part, values in blocks:
        out[part] = values
    return out


def add_blocks(blocks: Blocks, vector: NDArray[Any], weight: float) -> None:
    """Add ``weight`` times the blocks to `vector`, in its own precision."""
    for part, values in blocks:
        vector[part] += values if weight == 1.0 else np.multiply(values, weight, dtype=vector.dtype)


def shifted(blocks: Blocks, start: int) -> Iterator[tuple[slice, Vector]]:
    """Yield the blocks as parts of a longer vector, in which they begin at `start`."""
    for part, values in blocks:
        yield slice(start + part.start, start + part.stop), values
