"""RegTop-k's memory: error feedback, and what became of the entries that were sent last."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, check_int
from fedcomp.memory.error_feedback import ErrorFeedback
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantize import PreviousRound
from fedcomp.quantized import QuantizedVector

UNKNOWN = -1
FEEDBACK = ErrorFeedback()


@dataclass(frozen=True, slots=True)
class Regularized:
    """Error feedback that hints at what the others did with the entries sent last: `PreviousRound`, their sum for each.

    It is (g - w a) / w, where g is the aggregate, read off the model's change since then, a what was sent, and w = 1 / `nodes`
    the sender's weight.
    The hint is there only where the model is one version on from the round in which they were sent: after a skipped round,
    a lost message or without a known model there is none, and RegTop-k is top-k.  What moved the model is taken for the mean
    of the senders' messages: so the downlink should be dense, the server's step that of FedAvg, and the weights equal.
    Bereyhi, Liang, Boudreau, Afana, arXiv:2501.05633, Algorithm 1.
    """

    nodes: int

    vectors = ("residual",)
    incremental = False

    def __post_init__(self) -> None:
        """Refuse a number of nodes that is none."""
        check_int("nodes", self.nodes, 1, 10**9)

    def init(self, n: int) -> State:
        """Return a residual of zeros, float32 (n,), and no entries."""
        return FEEDBACK.init(n) | _nothing()

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return residual + update, and the hint."""
        n = update.shape[0]
        check_state(state, self.vectors, n)
        asked = FEEDBACK.compensate(update, state, context)
        asked.hint = self._hint(n, state, context)
        return asked

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return residual + update - sent, and what was sent from which model."""
        state, context, sparse = FEEDBACK.update(asked, sent), asked.context, sent.sparse()
        if sparse is None or context.model is None or context.round is None:
            return state | _nothing()
        return state | {
            "sent_indices": sparse.indices,
            "sent_values": sparse.values,
            "sent_from": context.model[sparse.indices],
            "sent_round": np.array([context.round]),
        }

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return residual + lost, and no entries: they are in no aggregate."""
        return FEEDBACK.rollback(lost, state) | _nothing()

    def _hint(self, n: int, state: State, context: EncodeContext) -> PreviousRound | None:
        model, indices = context.model, state["sent_indices"]
        if model is None or context.round is None or not indices.size or indices[-1] >= n:
            return None
        if int(state["sent_round"][0]) + 1 != context.round:
            return None
        with np.errstate(over="ignore"):
            aggregate = model[indices] - state["sent_from"]
            others = self.nodes * aggregate - state["sent_values"]
        return PreviousRound(indices, others, state["sent_values"])


def _nothing() -> State:
    return {
        "sent_indices": np.empty(0, np.int64),
        "sent_values": np.empty(0, np.float32),
        "sent_from": np.empty(0, np.float32),
        "sent_round": np.array([UNKNOWN]),
    }
