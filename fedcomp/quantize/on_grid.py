"""A quantizer whose result is on the grid of a downlink, where it can be."""

from dataclasses import dataclass
from typing import Any

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantized import QuantizedVector, onto_grid


@dataclass(frozen=True, slots=True)
class OnGrid:
    """`quantizer`, with the magnitude of a ternary vector rounded to a power of two; the memory keeps the difference."""

    quantizer: Quantizer[CompensatedUpdate, Any]

    def quantize(self, value: CompensatedUpdate, /) -> QuantizedVector:
        """Return the quantized vector."""
        quantized: QuantizedVector = onto_grid(self.quantizer.quantize(value))
        return quantized
