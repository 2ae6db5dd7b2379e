"""What a memory tells the quantizer about the past; a quantizer ignores the hints that it does not know."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core.types import Vector


class Hint:
    """The base of all hints.  A hint may improve what a quantizer keeps; the body decodes without it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RightFactors(Hint):
    """The right factors of the sender's last message, float32 (m,): where PowerSGD's iteration goes on."""

    values: Vector


@dataclass(frozen=True, slots=True)
class PreviousRound(Hint):
    """What became of the entries that RegTop-k sent in the round before.

    `indices` are theirs, int64 (m,), ascending; `others` is the sum that the other senders sent for each, `own` the value
    that this sender sent, both float32 (m,).
    """

    indices: NDArray[np.int64]
    others: Vector
    own: Vector
