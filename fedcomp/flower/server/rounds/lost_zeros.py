"""Entries that are exactly zero, as pruned weights are, and that compression makes something else."""

from collections.abc import Sequence
from logging import WARNING

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.update_error import error_of_entry
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.memory import LinearFeedback
from fedcomp.sync import Publisher

LEAST_SHARE = 0.1
"""A tensor counts if at least this share of its entries was zero, but not all of them, and as many are zero no longer."""
MOST_NOISE = 1.5
"""Entries whose mean square is at most this multiple of the expected noise are taken for noise, not for what nodes trained."""
MAX_NAMES = 5
"""The most names of tensors in the log line."""


class LostZeros:
    """Logs once that tensors have lost zeros of the first model or of the strategy; it looks in rounds 1, 2, 4, 8 and so on."""

    def __init__(self) -> None:
        self._is_logged, self._round = False, 0
        self._before: Vector | None = None
        self._unsent: NDArray[np.uint8] | None = None  # a bit for each entry: a bool would take a quarter of the vector

    def begin(self, server_round: int, publisher: Publisher) -> None:
        """Note the model of `publisher`, before the next version."""
        self._round, self._before, self._unsent = server_round, None, None
        if self._is_logged or server_round & (server_round - 1):
            return
        self._before = publisher.replica.vector
        if (residual := publisher.memory.get(LinearFeedback().name)) is not None:
            self._unsent = np.packbits(residual != 0)

    def end(self, replies: Sequence[ValidatedReply], change: Vector, publisher: Publisher) -> None:
        """Log which tensors have lost zeros in the new version of `publisher`.

        `change`, float32 (n,), is what the strategy made of the updates in `replies`.  A tensor of zeros alone, such as a first
        bias, is no pruned one.
        """
        if (before := self._before) is None:
            return
        self._before, after, noise = None, publisher.replica.vector, error_of_entry(replies, change)
        by_uplink: list[str] = []
        by_downlink: list[str] = []
        for tensor, part in publisher.replica.layout.filled:
            zeros, lost = before[part] == 0, after[part] != 0
            if zeros.all():
                continue
            meant = before[part] + change[part] == 0
            if self._unsent is not None:
                meant &= ~_bits(self._unsent, part)
            if _is_much(lost & meant):
                by_downlink.append(tensor.name)
            elif self._round == 1 and _is_much(lost & zeros):
                moved = change[part][zeros].astype(np.float64)
                if moved @ moved <= MOST_NOISE * noise * moved.size:
                    by_uplink.append(tensor.name)
        for names, link in ((by_uplink, "uplink"), (by_downlink, "downlink")):
            if names:
                self._is_logged = True
                text = (
                    "fedcomp: round %d: entries of %s that were 0 are not 0 any more, by the error of the %s; set pruned "
                    "weights to 0 again where the model is used, or name compressors that keep them, such as dense()"
                )
                log(WARNING, text, self._round, listed([repr(name) for name in names], MAX_NAMES), link)


def _bits(packed: NDArray[np.uint8], part: slice) -> NDArray[np.bool_]:
    first = part.start // 8
    bits = np.unpackbits(packed[first : -(-part.stop // 8)])
    return bits[part.start - 8 * first : part.stop - 8 * first].view(np.bool_)


def _is_much(entries: NDArray[np.bool_]) -> bool:
    return bool(np.count_nonzero(entries) >= LEAST_SHARE * entries.size)
