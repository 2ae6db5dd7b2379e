"""What a sender knows in addition to its update when it encodes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core.types import Vector

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class EncodeContext:
    """What quantizers and memories may look at while an update is encoded.

    `seed` seeds the random numbers.  `round` is the version of the model that the update starts from, None if unknown.
    `shapes` are the shapes of the tensors behind the vector, in order; empty means one tensor.  `model` is the vector that
    the update starts from, float32 (n,), and is only read.  `estimate_epoch` numbers the receiver's running sum: a sender
    whose estimate (`fedcomp.memory.Ef21`) belongs to another epoch starts from zero.
    """

    seed: int = 0
    round: int | None = None
    shapes: Shapes = ()
    model: Vector | None = None
    estimate_epoch: int = 0


class Hint:
    """The base of what a memory tells the quantizer about the past.  A quantizer ignores hints that it does not know."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RightFactors(Hint):
    """The right factors of the sender's last message, float32 (m,): PowerSGD's iteration continues from them."""

    values: Vector


@dataclass(frozen=True, slots=True)
class PreviousRound(Hint):
    """The entries that RegTop-k sent in the previous round, and what the other senders sent for them.

    `indices`, int64 (m,), are ascending.  `others` is the sum that the other senders sent for each entry, and `own` the value
    that this sender sent; both are float32 (m,).
    """

    indices: NDArray[np.int64]
    others: Vector
    own: Vector
