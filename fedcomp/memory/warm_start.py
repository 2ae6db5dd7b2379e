"""PowerSGD's warm start: the power iteration goes on from the factors of the last message."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, RightFactors
from fedcomp.memory.protocol import Memory, State
from fedcomp.quantized import LowRankFactors, QuantizedVector

NAME = "right_factors"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Another memory, which also hints at the right factors of the last message (`RightFactors`).

    Vogels, Karimireddy, Jaggi, NeurIPS 2019, section 3.  The receiver needs none of it: factors that are lost, or that do not
    fit, cost accuracy for a round or two and nothing else.
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
        factors = quantized.right if isinstance(quantized, LowRankFactors) else np.empty(0, np.float32)
        return {**self.memory.update(compensated, quantized, state), NAME: factors}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return the other memory's state; the factors stay, for a lost message does not make them worse."""
        return {**self.memory.rollback(lost, state), NAME: state.get(NAME, np.empty(0, np.float32))}
