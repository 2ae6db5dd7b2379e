"""Tensors of which no entry was below 0, as variances and counts, and in which compression makes entries that are."""

import math
from collections.abc import Sequence
from logging import WARNING

import numpy as np

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply, error_of_mean
from fedcomp.memory import LinearFeedback
from fedcomp.sync import Publisher

ROUNDS = 4
"""The first rounds, which are looked at: in later ones, training may have made a weight negative that was not so at first."""
FEWEST = 16
"""Of zeros, at least so many may be a count: fewer could all grow by chance."""
MOST_DEVIATIONS, LEAST_DEVIATIONS = 10.0, 3.0
"""An entry that is below 0 by at most so many standard deviations of its error may be above 0 without the error, which may be
far from Gaussian; and a tensor of which no entry is so many above 0 is hardly one that something is divided by."""
MAX_NAMES = 5
"""The most names of tensors in a log line."""
TEXT = (
    "fedcomp: round %d: compression makes entries of %s negative, of which none was: if these must not be, as variances and "
    "counts, let them travel as they are, with exact=, and with them what is divided by them"
)


class LostSigns:
    """Logs such tensors, each once, in the first rounds of a run."""

    def __init__(self) -> None:
        self._meant: dict[str, Vector] = {}
        self._logged: set[str] = set()

    def begin(self, server_round: int, change: Vector, publisher: Publisher) -> None:
        """Note what the tensors without a negative entry become by `change`, float32 (n,), if it is published exactly."""
        self._round, self._meant = server_round, {}
        if server_round > ROUNDS:
            return
        replica, residual = publisher.replica, publisher.memory.get(LinearFeedback().name)
        for tensor, part in replica.layout.filled:
            if tensor.name in self._logged or (before := replica.vector[part]).min() < 0:
                continue
            meant = before + change[part]
            if residual is not None:
                meant += residual[part]
            if before.any() or (tensor.size >= FEWEST and meant.min() >= 0 and meant.any()):
                self._meant[tensor.name] = meant

    def end(self, replies: Sequence[ValidatedReply], change: Vector, publisher: Publisher) -> None:
        """Log which of them have negative entries in the new version of `publisher` that the error of compression explains.

        `change` is what the strategy made of the updates in `replies`.
        """
        replica, names = publisher.replica, list[str]()
        noise = error_of_mean(replies) / max(1, int(np.count_nonzero(change))) if self._meant else 0.0
        least = -MOST_DEVIATIONS * math.sqrt(noise)
        for tensor, part in replica.layout.filled:
            if (meant := self._meant.pop(tensor.name, None)) is None:
                continue
            after = replica.vector[part]
            error = math.sqrt(noise + float(np.mean(np.square(after - meant))))
            if np.any((after < 0) & (meant >= least)) and meant.max() > LEAST_DEVIATIONS * error:
                names.append(tensor.name)
        if names:
            self._logged.update(names)
            log(WARNING, TEXT, self._round, listed([repr(name) for name in names], MAX_NAMES))
