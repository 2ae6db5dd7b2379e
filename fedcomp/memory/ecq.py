"""Error-compensated quantization: a share of the accumulated error is added, and the raw update's error accumulates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CompensatedUpdate, EncodeContext, check_range
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class Ecq:
    """Send C(update + alpha h); h = beta h + (update - sent), where the error is that of the raw update.

    Wu, Huang, Huang, Zhang (ECQ-SGD), ICML 2018, Algorithm 1.  With alpha = beta = 1 it is error feedback, to the bit.
    """

    alpha: float
    beta: float

    vectors = ("accumulated_error",)
    incremental = False

    def __post_init__(self) -> None:
        """Refuse an alpha or beta outside [0, 1]."""
        check_range("alpha", self.alpha, least=0, most=1)
        check_range("beta", self.beta, least=0, most=1)

    def contraction(self, variance: float) -> float:
        """Return lambda = alpha^2 gamma + (beta - alpha)^2, by which the error shrinks a step (the paper's section 4).

        `variance` is gamma: E||C(v) - v||^2 <= gamma ||v||^2.  From 1 on the error may grow without end.
        """
        return self.alpha**2 * variance + (self.beta - self.alpha) ** 2

    def init(self, n: int) -> State:
        """Return an error of zeros, float32 (n,)."""
        return {"accumulated_error": np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return alpha h + update."""
        check_state(state, self.vectors, update.shape[0])
        error = arithmetic.beside(state["accumulated_error"], update)
        return CompensatedUpdate(error, update, weights=(self.alpha, 1.0), bounded=True, context=context)

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return beta h + update - sent."""
        error, update = asked.parts
        with np.errstate(over="ignore"):
            if self.beta != 1:
                error *= self.beta
            error += update
        arithmetic.add(error, sent, -1.0)
        arithmetic.bound(error)
        return {"accumulated_error": error}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return h + lost."""
        error = state["accumulated_error"]
        arithmetic.add(error, lost, 1.0)
        arithmetic.bound(error, lost)
        return {"accumulated_error": error}
