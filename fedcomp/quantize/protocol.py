"""The contract of a quantizer, the quantizer without loss, and how quantizers join into one."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from fedcomp.core import CompensatedUpdate
from fedcomp.quantized import Dense

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Quantizer(Protocol[In, Out]):
    """A lossy step with frozen settings and no state, one way: the receiver sees the ``dense()`` of the result.

    The first step of a codec takes a `CompensatedUpdate`; a step that refines it takes a quantized vector.
    """

    def quantize(self, value: In, /) -> Out:
        """Return the quantized vector.  Raises `ValueError` if an entry of `value` is NaN or infinite."""
        ...


@dataclass(frozen=True, slots=True)
class Chain(Generic[A, B]):
    """Quantizers applied from left to right, made by `chain`."""

    steps: tuple[Quantizer[Any, Any], ...]

    def quantize(self, value: A, /) -> B:
        """Return `value` after all steps."""
        result: Any = value
        for step in self.steps:
            result = step.quantize(result)
        return result  # type: ignore[no-any-return]


@overload
def chain(first: Quantizer[A, B], second: Quantizer[B, C], /) -> Chain[A, C]: ...
@overload
def chain(first: Quantizer[A, B], second: Quantizer[B, C], third: Quantizer[C, D], /) -> Chain[A, D]: ...
def chain(*steps: Quantizer[Any, Any]) -> Chain[Any, Any]:
    """Return one quantizer that applies the steps in order, as in ``chain(TopK(0.01), Ternarize())``.

    Steps whose types do not meet are a type error.
    """
    return Chain(steps)


@dataclass(frozen=True, slots=True)
class Identity:
    """Keep every entry unchanged."""

    def quantize(self, value: CompensatedUpdate, /) -> Dense:
        """Return all entries.  Raises `ValueError` if one is NaN or infinite."""
        return Dense(value.dense())
