"""Kept entries in a cheaper float format."""

from dataclasses import dataclass

import numpy as np

from fedcomp.lazy_sum import LazySum
from fedcomp.quantize.buckets import carried, drawing
from fedcomp.settings import one_of
from fedcomp.stage import Stage, Vector
from fedcomp.symbols import Sparse
from fedcomp.symbols.precision import PRECISIONS, round_to

NATURAL = "natural"
LARGEST_EXPONENT = np.int32(254)


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Select as `selection` does, and round the kept entries to `values`.

    "fp32" leaves them, "fp16" and "bf16" round to the nearest, "natural" to one of the two next powers of two, at random and
    without bias (Horváth et al., arXiv:1905.10988, definition 1).  What rounds to zero is not sent.
    """

    selection: Stage[LazySum, Sparse]
    values: str

    def __post_init__(self) -> None:
        """Refuse a format that is not known."""
        one_of("values", self.values, (*PRECISIONS, NATURAL))

    def encode(self, value: LazySum, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` where an entry of the sum is NaN or infinite."""
        sparse = self.selection.encode(value)
        if self.values == NATURAL:
            rounded = _natural(sparse.values, drawing(value.occasion).words(sparse.values.size))
        else:
            rounded = round_to(sparse.values, self.values)
        if rounded.all():
            return Sparse(sparse.n, sparse.indices, rounded)
        keep = np.flatnonzero(rounded)
        return Sparse(sparse.n, sparse.indices[keep], rounded[keep])

    def decode(self, value: Sparse, /) -> LazySum:
        """Return the kept entries in place and zeros elsewhere."""
        return LazySum(value.dense())


def _natural(values: Vector, words: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Vector:
    exponents = carried(values.view(np.int32) & np.int32(0x7FFFFFFF), words)
    np.minimum(exponents, LARGEST_EXPONENT, out=exponents)
    powers = (exponents << np.int32(23)).view(np.float32)
    return np.copysign(powers, values)
