"""Error feedback that forgets: what was dropped long ago counts less."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.lazy_sum import LazySum
from fedcomp.memory import State, arithmetic, check
from fedcomp.occasion import NOWHERE, Occasion
from fedcomp.settings import within
from fedcomp.symbols import Symbols


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
        within("decay", self.decay, least=0, most=1)

    def init(self, n: int) -> State:
        """Return an error of zeros, float32 (n,)."""
        return {"decayed": np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State, occasion: Occasion = NOWHERE) -> LazySum:
        """Return decay e + update."""
        check(state, self.vectors, update.shape[0])
        error, safe = arithmetic.beside(state["decayed"], update), arithmetic.small(update)
        return LazySum(error, update, weights=(self.decay, 1.0), in_place=safe, bounded=True, occasion=occasion)

    def keep(self, asked: LazySum, sent: Symbols) -> State:
        """Return decay e + update - sent."""
        error = asked.settle()
        arithmetic.add(error, sent, -1.0)
        arithmetic.bound(error)
        return {"decayed": error}

    def restore(self, lost: Symbols, state: State) -> State:
        """Return e + lost."""
        error = state["decayed"]
        arithmetic.add(error, lost, 1.0)
        arithmetic.bound(error, lost)
        return {"decayed": error}
