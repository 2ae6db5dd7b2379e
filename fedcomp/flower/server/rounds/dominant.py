"""Few entries that change far more than all others, such as a count: what the others learn drowns in their error."""

from collections.abc import Sequence
from logging import WARNING

import numpy as np

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.update_error import error_of_mean
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.wire import Layout, TensorFlags

LEAST_SHARE, MOST_ENTRIES = 0.95, 0.01
"""Tensors dominate a change that have this share of its squared norm or more, in at most that share of its entries.

In ordinary models, a hundredth of the entries had a fifth of the squared norm at most, and the bias of a logistic regression on
rare words four fifths.
"""
LEAST_REST = 0.1
"""Nothing is told of a change of which the error of its updates leaves less than this share: the rest may be chance."""
MAX_NAMES = 5
"""The most names of tensors in the log line."""


class DominantTensors:
    """Logs the tensors that dominate the changes of a model, each once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def watch(
        self,
        server_round: int,
        replies: Sequence[ValidatedReply],
        change: Vector | None,
        unchanged: TensorFlags,
        layout: Layout,
    ) -> None:
        """Log which tensors dominate `change`, float32 (n,), if one of them was not logged; in rounds 1, 2, 4, 8 and so on.

        `change` is the mean of the updates in `replies`; None if the strategy makes another step of them.  Only methods that
        rotate spread their error evenly over all entries; with updates of others, nothing is logged.  `unchanged` tensors,
        bool (t,), such as those of a frozen backbone, have no part in it.
        """
        if server_round & (server_round - 1):
            return
        updates = [reply.update for reply in replies if reply.update is not None]
        if not (error := error_of_mean(replies)):
            return
        if change is None:
            change = np.zeros(layout.n, np.float32)
            for update in updates:
                update.change.add_to(change, update.factor / len(updates))
        sizes = np.array([tensor.size for tensor, _ in layout.filled]) * ~unchanged
        with np.errstate(over="ignore"):
            squares = np.array([float(change[part] @ change[part]) for _, part in layout.filled])
        if not 0 < (whole := squares.sum()) < np.inf:
            return
        squares = np.maximum(0, squares - error * sizes / sizes.sum())
        if squares.sum() < LEAST_REST * whole:
            return
        order: list[int] = np.argsort(-squares / np.maximum(sizes, 1), kind="stable").tolist()
        share = np.cumsum(squares[order]) / max(squares.sum(), np.finfo(float).tiny)
        number = int(np.searchsorted(share, LEAST_SHARE)) + 1
        entries, names = int(sizes[order[:number]].sum()), [layout.filled[place][0].name for place in order[:number]]
        if number > len(order) or entries > MOST_ENTRIES * sizes.sum() or self._logged.issuperset(names):
            return
        self._logged.update(names)
        text = (
            "fedcomp: round %d: %.1f %% of the squared change is in %d of %s entries, and compression gives all others an "
            "error that grows with them; if these are no weights, let them travel as they are, with exact=[%s]"
        )
        quoted = listed([repr(name) for name in names], MAX_NAMES)
        log(WARNING, text, server_round, 100 * share[number - 1], entries, f"{sizes.sum():,}", quoted)
