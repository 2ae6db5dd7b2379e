"""Each tensor quantized by itself, and small ones left as they are."""

from dataclasses import dataclass

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantize.tensor_topk import check_dense_below, stay_dense
from fedcomp.quantized import Dense, Segments, Ternary, join_dense


@dataclass(frozen=True, slots=True)
class PerTensor:
    """Apply `quantizer` to each tensor by itself.

    With `dense_below` above 0, tensors of one dimension or none, and those of fewer than `dense_below` entries, stay as they
    are.  A vector whose tensors are not known is one tensor.
    """

    quantizer: Quantizer[CompensatedUpdate, Ternary]
    dense_below: int = 0

    def __post_init__(self) -> None:
        """Refuse a `dense_below` out of range."""
        check_dense_below(self.dense_below)

    def quantize(self, value: CompensatedUpdate, /) -> Segments:
        """Return the tensors.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        stays = stay_dense(value.context.shapes, self.dense_below) or [False]
        pieces = (
            Dense(tensor.dense()) if dense else self.quantizer.quantize(tensor)
            for (_, tensor), dense in zip(value.tensors(), stays, strict=True)
        )
        return Segments(tuple(join_dense(pieces)))
