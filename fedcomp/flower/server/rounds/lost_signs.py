"""Tensors without a negative entry, such as variances and counts, that have some after compression."""

import math
from collections.abc import Sequence
from logging import WARNING

import numpy as np

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.update_error import error_of_entry
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.sync import Publisher

ROUNDS = 4
"""The first rounds, which are looked at: in later ones, training may have made a weight negative that was not so at first."""
FEWEST = 16
"""Of zeros, at least this number must become positive to look like a count: fewer could all grow by chance."""
MOST_DEVIATIONS = 8.0
"""A mean of replies may be below 0 by this number of standard deviations of its error, which may be far from Gaussian, although
no reply is.  If an entry is lower, the nodes have made it negative."""
LEAST_DEVIATIONS = 3.0
"""A tensor in which no entry is above 0 by this number of standard deviations is not named: it is hardly a variance or a count,
but may be the scale of a residual block, which begins near 0."""
MAX_NAMES = 5
"""The most names of tensors in a log line."""
TEXT = (
    "fedcomp: round %d: entries are negative after compression, and none was before, in %s. If that must not be, because they "
    "are variances or counts, send them exactly, with exact=, and also the tensors that go with them, such as means"
)


class LostSigns:
    """Logs such tensors, in the first rounds of a run."""

    def __init__(self) -> None:
        self._exact: dict[str, Vector] = {}

    def begin(self, server_round: int, change: Vector, publisher: Publisher) -> None:
        """Note what the tensors without a negative entry become by `change`, float32 (n,), if it is published exactly."""
        self._round, self._exact, replica = server_round, {}, publisher.replica
        if server_round > ROUNDS:
            return
        for tensor, part in replica.layout.filled:
            if (before := replica.vector[part]).min() < 0:
                continue
            exact = before + change[part]
            if before.any() or (exact.min() >= 0 and np.count_nonzero(exact) >= FEWEST):
                self._exact[tensor.name] = exact

    def end(self, replies: Sequence[ValidatedReply], change: Vector, publisher: Publisher) -> None:
        """Log which of them have negative entries in the new version of `publisher`, by the error of compression.

        `change` is what the strategy made of the updates in `replies`.
        """
        replica, names = publisher.replica, list[str]()
        noise = error_of_entry(replies, change) if self._exact else 0.0
        least = -MOST_DEVIATIONS * math.sqrt(noise)
        for tensor, part in replica.layout.filled:
            if (exact := self._exact.pop(tensor.name, None)) is None:
                continue
            after = replica.vector[part]
            error = math.sqrt(noise + float(np.mean(np.square(after - exact))))
            if after.min() < 0 and exact.min() >= least and exact.max() > LEAST_DEVIATIONS * error:
                names.append(tensor.name)
        if names:
            log(WARNING, TEXT, self._round, listed([repr(name) for name in names], MAX_NAMES))
