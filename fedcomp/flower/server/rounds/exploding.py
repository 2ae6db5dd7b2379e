"""Changes that grow beyond all measure: training diverges, because of compression or without it."""

import math
from logging import WARNING

import numpy as np

from fedcomp.core import Vector
from fedcomp.flower.compat import log

FIRST_ROUNDS = 4
"""The first rounds, with which later ones are compared."""
LONGER, LARGER = 100.0, 5.0
"""A change explodes if it is more than `LONGER` times as long as the longest of the first rounds, and the model more than
`LARGER` times as long as the first one.

In ordinary training, changes became 35 times as long, and models three times.  With a learning rate that rises from next to
nothing, changes become much longer, but the model does not, unless it begins near 0.
"""
LEAST_SIZE = 10.0
"""The root mean square of a model's entries from which it may have diverged; that of a trained network is mostly below 1."""
TEXT = (
    "fedcomp: round %d: training diverges: the change is %.3g times as long as those of the first rounds. If it does not with "
    "dense() both ways, the model has tensors in which training does not correct errors: send them exactly, with exact=, or "
    "name a compressor of more bits, such as eden(bits=4)"
)


class ExplodingChanges:
    """Logs once that changes explode."""

    def __init__(self) -> None:
        self._rounds, self._longest, self._first = 0, 0.0, 0.0
        self._is_logged = False

    def watch(self, server_round: int, change: Vector, model: Vector) -> None:
        """Count a round in which `change` is added to `model`, both float32 (n,)."""
        length = _length(change)
        if self._is_logged or not length:
            return
        if not self._rounds:
            self._first = _length(model)
        self._rounds += 1
        if self._rounds <= FIRST_ROUNDS:
            self._longest = max(self._longest, length)
        elif length > LONGER * self._longest:
            size = _length(model)
            if size > LARGER * self._first and size > LEAST_SIZE * math.sqrt(model.size):
                self._is_logged = True
                log(WARNING, TEXT, server_round, length / self._longest)


def _length(vector: Vector) -> float:
    return math.sqrt(float(np.einsum("i,i", vector, vector, dtype=np.float64)))
