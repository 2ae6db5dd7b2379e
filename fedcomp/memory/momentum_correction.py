"""Deep gradient compression's memory: momentum is accumulated before it is sparsified, not after."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, EncodeContext, check_bool, check_int, check_range
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class MomentumCorrection:
    """u = momentum u + g;  v = v + u;  send C(v);  v = v - C(v), and u = 0 where an entry was sent (factor masking).

    With `nesterov`, u = momentum (u + g) and v = v + u + g.  g is the update, its l2 norm clipped to ``clip / sqrt(nodes)``
    where `clip` is not 0.  A sender that skipped s rounds has its u shrunk by ``momentum**s``, as if it had seen updates of
    zero: an old velocity points nowhere.  Lin, Han, Mao, Wang, Dally (DGC), ICLR 2018, section 3; the rule for skipped
    rounds is ours.

    Without masking and with every entry sent, what is sent is momentum SGD's step.
    """

    momentum: float
    masking: bool = True
    nesterov: bool = False
    clip: float = 0.0
    nodes: int = 1

    vectors = ("velocity", "unsent_velocity")
    incremental = False

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
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
        velocity, unsent = (arithmetic.beside(state[name], update) for name in self.vectors)
        last, now = int(state["velocity_round"][0]), context.round
        skipped = max(0, now - last - 1) if now is not None and last != UNKNOWN else 0
        share, decay = self._clipped(update), self.momentum ** (1 + skipped)
        nesterov = self.momentum if self.nesterov else 0.0
        return _Velocities(
            (unsent, velocity, update), decay, share, nesterov, in_place=arithmetic.small(update), context=context
        )

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return the velocities, without what was sent."""
        if not isinstance(asked, _Velocities):
            raise TypeError("keep takes what compensate gave")
        unsent, velocity = asked.settle(), asked.velocity
        arithmetic.add(unsent, sent, -1.0)
        if self.masking:
            arithmetic.clear(velocity, sent)
        last = UNKNOWN if asked.context.round is None else asked.context.round
        return {"velocity": velocity, "unsent_velocity": unsent, "velocity_round": np.array([last])}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return v + lost."""
        unsent = state["unsent_velocity"]
        arithmetic.add(unsent, lost, 1.0)
        arithmetic.bound(unsent, lost)
        return state

    def _clipped(self, update: Any) -> float:
        """Return the factor, at most 1, that brings the update's norm to the limit."""
        if not self.clip:
            return 1.0
        blocks = CompensatedUpdate(update).blocks()
        norm = math.sqrt(sum(float(np.square(block, dtype=np.float64).sum()) for _, block in blocks))
        limit = self.clip / math.sqrt(self.nodes)
        return limit / norm if norm > limit else 1.0


class _Velocities(CompensatedUpdate):
    """The sum v + u' as it is after this update; settling it brings u to u' as well."""

    __slots__ = ("decay", "nesterov", "share", "velocity")

    def __init__(self, parts: tuple[Any, Any, Any], decay: float, share: float, nesterov: float, **known: Any) -> None:
        """Take v, u and g: u' = decay u + share g, or with Nesterov's m, decay u + m share g, and g counts once more."""
        super().__init__(*parts, weights=(1.0, decay, share * (1 + nesterov)), bounded=True, **known)
        self.velocity, self.decay = parts[1], decay
        self.share, self.nesterov = share * (nesterov or 1.0), nesterov

    def settle(self) -> Any:
        """Return v + u' in the memory of v; u' is in that of u."""
        if self.weights[1:]:
            step = BLOCK_ENTRIES if self.on_host else self.n
            for start in range(0, self.n, step):
                self._settle(start, min(start + step, self.n))
            self._settled()
        return self.parts[0]

    def _settle(self, start: int, end: int) -> Any:
        v, u, g = (part[start:end] for part in self.parts)
        weight = self.weights[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            u *= self.decay
            v += u
            v += g if weight == 1 else g * weight
            u += g if self.share == 1 else g * self.share
            arithmetic.bound(u)
            arithmetic.bound(v)
        return v

    def _part(self, part: slice) -> CompensatedUpdate:
        parts = tuple(one[part] for one in self.parts)
        known = {"in_place": self.in_place, "context": self.context, "origin": self.origin + part.start}
        return _Velocities(
            (parts[0], parts[1], parts[2]), self.decay, self.weights[-1] / (1 + self.nesterov), self.nesterov, **known
        )
