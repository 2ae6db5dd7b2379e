"""What the quantizer found last time, as its start of this time, beside another memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.memory.protocol import Memory, State
from fedcomp.quantized import LowRankFactors, QuantizedVector

NAME = "right_factors"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The right factors of what was sent last go with what is asked next, as its hint; all else is up to `memory`.

    Vogels, Karimireddy, Jaggi, NeurIPS 2019, section 3: so the power iteration goes on from round to round.  The receiver
    needs no part of it: a start that is lost, or does not fit, costs accuracy for a round or two and nothing else.
    """

    memory: Memory

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the state's arrays that are float32 (n,)."""
        return self.memory.vectors

    @property
    def incremental(self) -> bool:
        """Whether what is sent adds up to an estimate of the update."""
        return self.memory.incremental

    def init(self, n: int) -> State:
        """Return the other memory's state and no factors."""
        return {**self.memory.init(n), NAME: np.empty(0, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return what the other memory asks, with the factors as its hint."""
        asked = self.memory.compensate(update, state, context)
        asked.hint = state.get(NAME)
        return asked

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return what the other memory keeps, with the factors of `sent`, where it has some."""
        factors = sent.right if isinstance(sent, LowRankFactors) else np.empty(0, np.float32)
        return {**self.memory.update(asked, sent), NAME: factors}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return what the other memory restores, with the factors as they are: what they found is no less true."""
        return {**self.memory.rollback(lost, state), NAME: state.get(NAME, np.empty(0, np.float32))}
