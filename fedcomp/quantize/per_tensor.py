"""Each tensor by itself: its largest entries, or all of it through another quantizer."""

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from fedcomp.core import CompensatedUpdate, Shapes, check_int
from fedcomp.quantize.error_bound import Contracting, ErrorBound, error_bound
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantize.topk import check_density, num_kept, select
from fedcomp.quantized import Dense, Segments, Sparse, Ternary, join_dense

MAX_DENSE_BELOW = 1 << 31


@dataclass(frozen=True, slots=True)
class TensorTopK:
    """Keep the k = max(1, ceil(density m)) entries of largest magnitude of each tensor of m entries, but no exact zeros.

    This is the "selective masking" of Ji, Jiang, Walid, Li, IEEE Intelligent Systems 37(2), 2022.  With `dense_below` above
    0, tensors of one dimension or none, and tensors of fewer than `dense_below` entries, keep all their entries, as in the
    reference code of DGC (Lin et al., ICLR 2018).  Their positions cost about one bit more per entry.
    """

    density: float
    dense_below: int = 0

    def __post_init__(self) -> None:
        check_density(self.density)
        check_dense_below(self.dense_below)

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        parts = [
            (start, *select(part, count))
            for (start, part), count in zip(value.tensors(), self._counts(value), strict=True)
        ]
        indices = np.concatenate([start + indices for start, indices, _ in parts])
        return Sparse(value.n, indices, np.concatenate([values for _, _, values in parts]))

    def sent_whole(self, value: CompensatedUpdate, /) -> list[slice]:
        """Return the tensors of which all entries are sent: tensors that stay dense, and tensors whose k is their size."""
        edges = pairwise(accumulate(value.sizes, initial=0))
        return [
            slice(*ends) for ends, count in zip(edges, self._counts(value), strict=True) if count == ends[1] - ends[0]
        ]

    def _counts(self, value: CompensatedUpdate) -> list[int]:
        dense = stay_dense(value.context.shapes, self.dense_below) or [False]
        return [size if whole else num_kept(self.density, size) for size, whole in zip(value.sizes, dense, strict=True)]

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - density."""
        return Contracting(1 - self.density)


def check_dense_below(dense_below: object) -> None:
    """Refuse anything but a whole number of at least 0."""
    check_int(
        "dense_below", dense_below, 0, MAX_DENSE_BELOW, "the entries below which a tensor stays dense, 0 for none"
    )


def stay_dense(shapes: Shapes, dense_below: int) -> list[bool]:
    """Return for each tensor that has entries whether it stays dense: if it is small or of one dimension; never for 0."""
    return [
        dense_below > 0 and (len(shape) < 2 or math.prod(shape) < dense_below) for shape in shapes if math.prod(shape)
    ]


@dataclass(frozen=True, slots=True)
class PerTensor:
    """Apply `quantizer` to each tensor by itself.

    With `dense_below` above 0, tensors of one dimension or none, and tensors of fewer than `dense_below` entries, are sent
    unchanged.  If the shapes are unknown, the vector is one tensor.
    """

    quantizer: Quantizer[CompensatedUpdate, Ternary]
    dense_below: int = 0

    def __post_init__(self) -> None:
        check_dense_below(self.dense_below)

    def quantize(self, value: CompensatedUpdate, /) -> Segments:
        """Return the tensors.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        stays = stay_dense(value.context.shapes, self.dense_below) or [False]
        pieces = (
            Dense(tensor.dense()) if dense else self.quantizer.quantize(tensor)
            for (_, tensor), dense in zip(value.tensors(), stays, strict=True)
        )
        return join_dense(pieces)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the bound of the quantizer of each tensor."""
        return error_bound(self.quantizer, n)
