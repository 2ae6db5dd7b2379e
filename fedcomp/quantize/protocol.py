"""The contract of a quantizer, the quantizer without loss, and how quantizers join into one."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.error_bound import Contracting, ErrorBound, error_bound, joint, squared_error
from fedcomp.quantized import Dense, QuantizedVector, onto_grid

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Quantizer(Protocol[In, Out]):
    """A lossy step with frozen settings and no state; the receiver sees the ``dense()`` of the result.

    The first step of a codec takes a `CompensatedUpdate`; a step that refines the result takes a quantized vector.
    """

    def quantize(self, value: In, /) -> Out:
        """Return the quantized vector.  Raises `ValueError` if an entry of `value` is NaN or infinite."""
        ...


@dataclass(frozen=True, slots=True)
class Chain(Generic[A, B, C]):
    """Two quantizers, one after the other, made by `chain`."""

    first: Quantizer[A, B]
    second: Quantizer[B, C]

    def quantize(self, value: A, /) -> C:
        """Return `value` after both steps."""
        return self.second.quantize(self.first.quantize(value))

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the joint bound of both steps: the second one changes the entries that the first one keeps."""
        return joint(error_bound(self.first, n), squared_error(error_bound(self.second, n)))


def chain(first: Quantizer[A, B], second: Quantizer[B, C], /) -> Chain[A, B, C]:
    """Return one quantizer that applies both in order, as in ``chain(TopK(0.01), Ternarize())``."""
    return Chain(first, second)


@dataclass(frozen=True, slots=True)
class Identity:
    """Keep every entry unchanged."""

    def quantize(self, value: CompensatedUpdate, /) -> Dense:
        """Return all entries.  Raises `ValueError` if an entry is NaN or infinite."""
        return Dense(value.dense())

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 0."""
        return Contracting(0.0)


@dataclass(frozen=True, slots=True)
class OnGrid:
    """`quantizer`, with the magnitude of a ternary vector rounded to a power of two; the memory keeps the difference."""

    quantizer: Quantizer[CompensatedUpdate, Any]

    def quantize(self, value: CompensatedUpdate, /) -> QuantizedVector:
        """Return the quantized vector."""
        quantized: QuantizedVector = onto_grid(self.quantizer.quantize(value))
        return quantized
