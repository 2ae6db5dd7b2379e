"""Deep gradient compression's memory: momentum is accumulated before the update is sparsified, not after."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CompensatedUpdate, EncodeContext, Settlement, check_bool, check_int, check_range
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class MomentumCorrection:
    """u = momentum u + g;  v = v + u;  send C(v);  v = v - C(v), and u = 0 for each sent entry (factor masking).

    With `nesterov`, u = momentum (u + g) and v = v + u + g.  g is the update, its l2 norm clipped to ``clip / sqrt(nodes)``
    unless `clip` is 0.  After s skipped rounds u shrinks by ``momentum**s``, as if the updates in between had been zero.
    Lin, Han, Mao, Wang, Dally (DGC), ICLR 2018, section 3; the rule for skipped rounds is ours.
    """

    momentum: float
    masking: bool = True
    nesterov: bool = False
    clip: float = 0.0
    nodes: int = 1

    vectors = ("velocity", "unsent_velocity")
    incremental = False

    def __post_init__(self) -> None:
        check_range("momentum", self.momentum, least=0, most=0.9999)
        check_range("clip", self.clip, least=0, what="the largest norm of the mean update, 0 for none")
        check_int("nodes", self.nodes, 1, 10**9)
        check_bool("masking", self.masking)
        check_bool("nesterov", self.nesterov)

    def init(self, n: int) -> State:
        """Return velocities of zeros, float32 (n,), and no round."""
        return {name: np.zeros(n, np.float32) for name in self.vectors} | {"velocity_round": np.array([UNKNOWN])}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return v + u as they are after this update."""
        check_state(state, self.vectors, update.shape[0])
        velocity, unsent = (arithmetic.as_like(state[name], update) for name in self.vectors)
        last, now = int(state["velocity_round"][0]), context.round
        skipped = max(0, now - last - 1) if now is not None and last != UNKNOWN else 0
        scale, decay = self._clip_factor(update), self.momentum ** (1 + skipped)
        to_velocity = scale * self.momentum if self.nesterov else scale
        to_unsent = scale * (1 + self.momentum) if self.nesterov else scale
        return CompensatedUpdate(
            *(unsent, velocity, update),
            weights=(1.0, decay, to_unsent),
            settlement=Settlement(partial(_accumulate, decay, to_velocity, to_unsent), (1.0, None, None)),
            in_place=arithmetic.is_small(update),
            bounded=True,
            context=context,
        )

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return the velocities, without what was sent."""
        unsent, velocity, _ = compensated.settle()
        arithmetic.add(unsent, quantized, -1.0)
        if self.masking:
            arithmetic.zero(velocity, quantized)
        last = UNKNOWN if compensated.context.round is None else compensated.context.round
        return {"velocity": velocity, "unsent_velocity": unsent, "velocity_round": np.array([last])}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return v + lost."""
        arithmetic.add_clipped(state["unsent_velocity"], lost, 1.0)
        return state

    def _clip_factor(self, update: Any) -> float:
        """Return the factor, at most 1, that brings the update's norm to the limit."""
        if not self.clip:
            return 1.0
        blocks = CompensatedUpdate(update).blocks()
        norm = math.sqrt(sum(float(np.square(block, dtype=np.float64).sum()) for _, block in blocks))
        limit = self.clip / math.sqrt(self.nodes)
        return limit / norm if norm > limit else 1.0


@np.errstate(over="ignore", invalid="ignore")
def _accumulate(decay: float, to_velocity: float, to_unsent: float, unsent: Any, velocity: Any, update: Any) -> Any:
    """Bring u and v, `velocity` and `unsent`, up to date, and return v."""
    velocity *= decay
    unsent += velocity
    unsent += _scaled(update, to_unsent)
    velocity += _scaled(update, to_velocity)
    arithmetic.clip(velocity)
    arithmetic.clip(unsent)
    return unsent


def _scaled(update: Any, weight: float) -> Any:
    """Return the weighted update within float32: its infinity plus one of the other sign would be NaN."""
    if weight == 1:
        return update
    scaled = update * weight
    if weight > 1:
        arithmetic.clip(scaled)
    return scaled
