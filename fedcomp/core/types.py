"""A step of a codec: lossy (`quantize/`) or lossless (`entropy/`), with frozen settings and no state.

Stages compose: ``chain(TopK(0.01), Ternarize(), GolombTernary())`` encodes a vector into bytes and decodes them back.
A chain whose types do not meet is a type error.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@lru_cache(maxsize=64)
def dtype_name(dtype: object) -> str:
    """Return the name of a numpy or torch dtype, as ``"float32"``; numpy puts it together anew each time."""
    return str(dtype).removeprefix("torch.")


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Stage(Protocol[A, B]):
    """One step from `A` to `B` and back.

    A lossless stage holds ``decode(encode(value)) == value`` to the bit.  A lossy one (a quantizer) decodes to what the
    receiver will see of the value.
    """

    def encode(self, value: A, /) -> B:
        """Return `value` as the next stage takes it."""
        ...

    def decode(self, value: B, /) -> A:
        """Return what the receiver sees of the encoded value."""
        ...


@dataclass(frozen=True, slots=True)
class Chain(Generic[A, B]):
    """Stages one after the other: encodes left to right, decodes right to left.  Made by `chain`."""

    stages: tuple[Stage[Any, Any], ...]

    def encode(self, value: A, /) -> B:
        """Return `value` through all stages."""
        result: Any = value
        for stage in self.stages:
            result = stage.encode(result)
        return result  # type: ignore[no-any-return]

    def decode(self, value: B, /) -> A:
        """Return `value` back through all stages."""
        result: Any = value
        for stage in reversed(self.stages):
            result = stage.decode(result)
        return result  # type: ignore[no-any-return]


@overload
def chain(first: Stage[A, B], second: Stage[B, C], /) -> Chain[A, C]: ...
@overload
def chain(first: Stage[A, B], second: Stage[B, C], third: Stage[C, D], /) -> Chain[A, D]: ...
def chain(*stages: Stage[Any, Any]) -> Chain[Any, Any]:
    """Return the stages joined into one stage."""
    return Chain(stages)
