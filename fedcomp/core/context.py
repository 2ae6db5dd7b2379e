"""What a sender knows of the moment, beside its update: a value that goes with what is to be encoded."""

from dataclasses import dataclass

from fedcomp.core.types import Vector

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class EncodeContext:
    """`seed` of the random numbers; `round`, the version of the model that the update starts from, where one is known.

    `shapes` are those of the tensors behind the vector, in order; none stand for one tensor.  `model` is the vector that the
    update starts from, float32 (n,); it is only read.
    """

    seed: int = 0
    round: int | None = None
    shapes: Shapes = ()
    model: Vector | None = None
