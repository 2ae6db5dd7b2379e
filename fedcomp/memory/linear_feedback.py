"""Error feedback: what compression dropped is added to the next update, so that it is sent later."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CompensatedUpdate, EncodeContext, check_range, move_into_first, writeable
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector

RESIDUAL = "residual"


@dataclass(frozen=True, slots=True)
class LinearFeedback:
    """Send C(a) with a = alpha e + update; then e = beta e + update - C(a).

    * (1, 1): error feedback.  Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.
    * (d, d): an error that decays, in the place of momentum.  Sarfi et al. (SparseLoCo), arXiv:2508.15706, Algorithm 1.
    * (alpha, beta): the error of the raw update.  Wu, Huang, Huang, Zhang (ECQ-SGD), ICML 2018, Algorithm 1.

    `name` is the name of e in the state.  The name "residual" is a promise: the sum of everything sent plus the residual is
    the sum of all updates, up to rounding.  It needs alpha = beta = 1, and a sum beyond float32 is refused.  Under any other
    name e saturates at the largest float32.
    """

    alpha: float = 1.0
    beta: float = 1.0
    name: str = RESIDUAL

    incremental = False

    def __post_init__(self) -> None:
        check_range("alpha", self.alpha, least=0, most=1)
        check_range("beta", self.beta, least=0, most=1)
        if self.name == RESIDUAL and not self.alpha == self.beta == 1:
            raise ValueError(f"a residual with alpha={self.alpha!r} and beta={self.beta!r}; both must be 1")

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the state's arrays that are float32 (n,)."""
        return (self.name,)

    def contraction(self, variance: float) -> float:
        """Return lambda = alpha^2 gamma + (beta - alpha)^2, the factor of the error in each step (ECQ-SGD, section 4).

        `variance` is gamma: E||C(v) - v||^2 <= gamma ||v||^2.  At 1 and above the error may grow without bound.
        """
        return self.alpha**2 * variance + (self.beta - self.alpha) ** 2

    def init(self, n: int) -> State:
        """Return an error of zeros, float32 (n,)."""
        return {self.name: np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return alpha e + update."""
        check_state(state, self.vectors, update.shape[0])
        return CompensatedUpdate(
            arithmetic.as_like(state[self.name], update),
            update,
            weights=(self.alpha, 1.0),
            commit_rule=move_into_first((self.beta, 1.0)),
            # The sum of a finite error and small entries is finite.
            in_place=self.alpha == self.beta and arithmetic.is_small(update),
            bounded=self.name != RESIDUAL,
            context=context,
        )

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return beta e + update - quantized."""
        error = compensated.commit()[0]
        arithmetic.add(error, quantized, -1.0)
        if self.name != RESIDUAL:
            arithmetic.clip(error)
        return {self.name: error}

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return e + share lost."""
        error = writeable(state[self.name])
        arithmetic.add_clipped(error, lost, share)
        return {self.name: error}
