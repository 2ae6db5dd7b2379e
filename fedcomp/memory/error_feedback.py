"""Error feedback: what compression dropped is added to the next update, so nothing is lost, only late."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class ErrorFeedback:
    """a = residual + update; send C(a); residual = a - C(a).

    Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.  The law: all that was ever sent plus the residual is all
    that was ever asked to be sent, up to float rounding.
    """

    vectors = ("residual",)
    incremental = False

    def init(self, n: int) -> State:
        """Return a residual of zeros, float32 (n,)."""
        return {"residual": np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return residual + update."""
        check_state(state, self.vectors, update.shape[0])
        residual = arithmetic.beside(state["residual"], update)
        # No finite residual overflows with an update whose entries are small.
        return CompensatedUpdate(residual, update, in_place=arithmetic.small(update), context=context)

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return residual + update - sent."""
        residual = asked.settle()
        arithmetic.add(residual, sent, -1.0)
        return {"residual": residual}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return residual + lost."""
        residual = state["residual"]
        arithmetic.add(residual, lost, 1.0)
        arithmetic.bound(residual, lost)
        return {"residual": residual}
