"""Error feedback that forgets: what was dropped long ago counts less."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CompensatedUpdate, EncodeContext, check_range
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class DecayedFeedback:
    """a = decay e + update; send C(a); e = a - C(a).

    Sarfi et al. (SparseLoCo), arXiv:2508.15706, Algorithm 1, where the decay stands for momentum.
    """

    decay: float

    vectors = ("decayed",)
    incremental = False

    def __post_init__(self) -> None:
        """Refuse a decay outside [0, 1]."""
        check_range("decay", self.decay, least=0, most=1)

    def init(self, n: int) -> State:
        """Return an error of zeros, float32 (n,)."""
        return {"decayed": np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return decay e + update."""
        check_state(state, self.vectors, update.shape[0])
        error, safe = arithmetic.beside(state["decayed"], update), arithmetic.small(update)
        return CompensatedUpdate(error, update, weights=(self.decay, 1.0), in_place=safe, bounded=True, context=context)

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return decay e + update - sent."""
        error = asked.settle()
        arithmetic.add(error, sent, -1.0)
        arithmetic.bound(error)
        return {"decayed": error}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return e + lost."""
        error = state["decayed"]
        arithmetic.add(error, lost, 1.0)
        arithmetic.bound(error, lost)
        return {"decayed": error}
