"""A largest norm of quantized vectors: the noise of differential privacy must fit the received vector, not the update."""

import math
from dataclasses import dataclass
from typing import Any

from fedcomp.core import CompensatedUpdate, check_range
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantized import QuantizedVector, l2_norm

MARGINS = (2.0**-22, 2.0**-16, 2.0**-8)
"""The margin of each attempt below the largest norm: rounding may lengthen a vector a little."""


@dataclass(frozen=True, slots=True)
class NormBound:
    """`quantizer`, with its input scaled down if the l2 norm of the result would exceed `max_norm`, which is at least 0.

    The norm is measured on the decoded vector.  It may be longer than the update: it includes a residual, unbiased methods
    lengthen it, and values are rounded.  The memory subtracts the sent vector from the unscaled sum, so nothing is lost.
    """

    quantizer: Quantizer[CompensatedUpdate, Any]
    max_norm: float

    def __post_init__(self) -> None:
        check_range("max_norm", self.max_norm, least=0, what="the largest norm of what is sent")

    def quantize(self, value: CompensatedUpdate, /) -> QuantizedVector:
        """Return the quantized vector.  Raises `ValueError` if the quantizer does not follow the scale of its input."""
        value.in_place = False  # it is read several times, and a failure must leave the memory as it was
        quantized: QuantizedVector = self.quantizer.quantize(value)
        whole = norm = l2_norm(quantized)
        scale = 1.0
        for margin in MARGINS:
            if norm <= self.max_norm:
                return quantized
            scale *= self.max_norm / norm * (1 - margin)
            quantized = self.quantizer.quantize(value.scaled(scale))
            norm = l2_norm(quantized)
        if norm > self.max_norm > 0:  # random levels change with the scale, unless the scale is a power of two
            quantized = self.quantizer.quantize(value.scaled(2.0 ** math.floor(math.log2(self.max_norm / whole))))
            norm = l2_norm(quantized)
        if norm > self.max_norm:
            raise ValueError(
                f"{self.quantizer} sends a vector of norm {norm:g} however small its input; {self.max_norm:g} is the most"
            )
        return quantized
