"""Kept entries in a cheaper float format."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, Vector, check_choice
from fedcomp.quantize.buckets import round_exponents, rounding_stream
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantized import PRECISIONS, Sparse, round_to

NATURAL = "natural"
MAX_EXPONENT = np.int32(254)


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Round the entries that `selection` keeps to the format `values`.

    "fp32" changes nothing, "fp16" and "bf16" round to the nearest, "natural" to one of the two next powers of two, at random
    without bias (Horváth et al., arXiv:1905.10988, definition 1).  Entries that become zero are not sent.
    """

    selection: Quantizer[CompensatedUpdate, Sparse]
    values: str

    def __post_init__(self) -> None:
        check_choice("values", self.values, (*PRECISIONS, NATURAL))

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        sparse = self.selection.quantize(value)
        if self.values == NATURAL:
            rounded = _natural(sparse.values, rounding_stream(value.context).words(sparse.values.size))
        else:
            rounded = round_to(sparse.values, self.values)
        if rounded.all():
            return Sparse(sparse.n, sparse.indices, rounded)
        keep = np.flatnonzero(rounded)
        return Sparse(sparse.n, sparse.indices[keep], rounded[keep])


def _natural(values: Vector, words: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Vector:
    exponents = round_exponents(values.view(np.int32) & np.int32(0x7FFFFFFF), words)
    np.minimum(exponents, MAX_EXPONENT, out=exponents)
    powers = (exponents << np.int32(23)).view(np.float32)
    return np.copysign(powers, values)
