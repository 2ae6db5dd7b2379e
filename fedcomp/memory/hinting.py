"""Memories that tell the quantizer about the last message: PowerSGD's factors, RegTop-k's entries."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, PreviousRound, RightFactors, check_int
from fedcomp.memory.linear_feedback import LinearFeedback
from fedcomp.memory.protocol import Memory, State
from fedcomp.quantized import QuantizedVector, right_factors

NAME = "right_factors"
UNKNOWN = -1
FEEDBACK = LinearFeedback()


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Another memory that also gives the quantizer the right factors of the last message (`RightFactors`).

    Vogels, Karimireddy, Jaggi, NeurIPS 2019, section 3.  The receiver needs none of this: factors that are lost, or that do
    not fit, cost accuracy for a round or two and nothing else.
    """

    memory: Memory

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the state's arrays that are float32 (n,)."""
        return self.memory.vectors

    @property
    def incremental(self) -> bool:
        """Whether messages add up to an estimate of the update."""
        return self.memory.incremental

    def init(self, n: int) -> State:
        """Return the other memory's state and no factors."""
        return {**self.memory.init(n), NAME: np.empty(0, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return the other memory's sum, with the factors as its hint."""
        compensated = self.memory.compensate(update, state, context)
        compensated.hint = RightFactors(state[NAME]) if NAME in state else None
        return compensated

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return the other memory's state, with the right factors of `quantized` if it has any."""
        return {**self.memory.update(compensated, quantized, state), NAME: right_factors(quantized)}

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return the other memory's state.  The factors stay: a lost message does not make them worse."""
        return {**self.memory.rollback(lost, state, share), NAME: state.get(NAME, np.empty(0, np.float32))}


@dataclass(frozen=True, slots=True)
class Regularized:
    """Error feedback that also estimates what the other senders sent for the entries of the last message (`PreviousRound`).

    For each entry the estimate is (g - w a) / w.  g is the aggregate, which is the change of the model since that message; a
    is the value that was sent; w = 1 / `nodes` is the sender's weight.

    There is a hint only if the model is known, is one version newer than that message, and the message was not lost.  Without
    a hint, RegTop-k is top-k.  The model's change is taken for the mean of the senders' messages.  So the downlink should be
    dense, the strategy FedAvg, and the weights equal.

    Bereyhi, Liang, Boudreau, Afana, arXiv:2501.05633, Algorithm 1.
    """

    nodes: int

    vectors = FEEDBACK.vectors
    incremental = False

    def __post_init__(self) -> None:
        check_int("nodes", self.nodes, 1, 10**9)

    def init(self, n: int) -> State:
        """Return a residual of zeros, float32 (n,), and no message."""
        return FEEDBACK.init(n) | _no_message()

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return residual + update, and the hint."""
        compensated = FEEDBACK.compensate(update, state, context)
        compensated.hint = self._hint(state, context)
        return compensated

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return residual + update - quantized, and the message: its entries, and the model's values at these entries."""
        state, context = FEEDBACK.update(compensated, quantized, state), compensated.context
        sparse = quantized.sparse()
        if sparse is None or context.model is None or context.round is None:
            return state | _no_message()
        return state | {
            "sent_indices": sparse.indices,
            "sent_values": sparse.values,
            "sent_from": context.model[sparse.indices],
            "sent_round": np.array([context.round]),
        }

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return residual + share lost, and no message: the aggregate does not contain the whole message."""
        return FEEDBACK.rollback(lost, state, share) | _no_message()

    def _hint(self, state: State, context: EncodeContext) -> PreviousRound | None:
        model, indices = context.model, state["sent_indices"]
        if model is None or context.round is None or not indices.size or indices[-1] >= model.size:
            return None
        if int(state["sent_round"][0]) + 1 != context.round:
            return None
        with np.errstate(over="ignore"):
            aggregate = model[indices] - state["sent_from"]
            others = self.nodes * aggregate - state["sent_values"]
        return PreviousRound(indices, others, state["sent_values"])


def _no_message() -> State:
    return {
        "sent_indices": np.empty(0, np.int64),
        "sent_values": np.empty(0, np.float32),
        "sent_from": np.empty(0, np.float32),
        "sent_round": np.array([UNKNOWN]),
    }
