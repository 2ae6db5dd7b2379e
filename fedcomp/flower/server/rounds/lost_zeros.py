"""Entries that are exactly zero, as pruned weights are, and that compression makes something else."""

from collections.abc import Sequence
from logging import WARNING

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.wire import Layout

LEAST_SHARE = 0.1
"""A tensor counts if at least this share of its entries was zero, but not all of them, and as many are zero no longer."""
MAX_NAMES = 5
"""The most names of tensors in the log line."""


class LostZeros:
    """Logs once that tensors have lost zeros which the first model or the strategy gave them."""

    def __init__(self) -> None:
        self._is_logged = False

    def watch(
        self,
        server_round: int,
        replies: Sequence[ValidatedReply],
        before: Vector,
        change: Vector,
        after: Vector,
        layout: Layout,
    ) -> None:
        """Log which tensors have lost zeros; in rounds 1, 2, 4, 8 and so on.

        `before` and `after` are the published vectors, float32 (n,), and `change` is what the strategy made of the updates in
        `replies`.  A tensor of zeros alone, such as a first bias, is no pruned one.
        """
        if self._is_logged or server_round & (server_round - 1):
            return
        rotated = any(reply.update is not None and reply.update.expected_noise is not None for reply in replies)
        by_uplink: list[str] = []
        by_downlink: list[str] = []
        for tensor, part in layout.filled:
            zeros, lost = before[part] == 0, after[part] != 0
            if zeros.all():
                continue
            if _is_much(lost & (before[part] + change[part] == 0)):
                by_downlink.append(tensor.name)
            elif rotated and server_round == 1 and _is_much(lost & zeros):
                by_uplink.append(tensor.name)
        for names, link in ((by_uplink, "uplink"), (by_downlink, "downlink")):
            if names:
                self._is_logged = True
                text = (
                    "fedcomp: round %d: entries of %s that were 0 are not 0 any more, by the error of the %s; set pruned "
                    "weights to 0 again where the model is used, or name compressors that keep them, such as dense()"
                )
                log(WARNING, text, server_round, listed([repr(name) for name in names], MAX_NAMES), link)


def _is_much(entries: NDArray[np.bool_]) -> bool:
    return bool(np.count_nonzero(entries) >= LEAST_SHARE * entries.size)
