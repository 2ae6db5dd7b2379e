"""Deep gradient compression's memory: momentum is accumulated before the update is sparsified, not after."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import (
    CommitRule,
    CompensatedUpdate,
    EncodeContext,
    Vector,
    check_bool,
    check_int,
    check_range,
    writeable,
)
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import Indices, QuantizedVector

UNKNOWN = -1
MASKED_AT, MASKED = "masked_at", "masked_velocity"
"""Where the last message masked the velocity, and the masked values: `rollback` needs them if the message is lost."""


class SelectingQuantizer(Protocol):
    """A quantizer that keeps some of the entries."""

    def sent_whole(self, value: CompensatedUpdate, /) -> list[slice]:
        """Return the parts of the vector, in order, of which all entries are sent: nothing is selected there."""
        ...


@dataclass(frozen=True, slots=True)
class MomentumCorrection:
    """u = momentum u + g;  v = v + u;  send C(v);  v = v - C(v), and u = 0 for each entry that was selected (factor masking).

    With `nesterov`, u = momentum (u + g) and v = v + u + g.  g is the update, its l2 norm clipped to ``clip / sqrt(nodes)``
    unless `clip` is 0.  After s skipped rounds u shrinks by ``momentum**s``, as if the updates in between had been zero.
    Only entries that were chosen over others are masked.  The entries of parts that `selection` sends whole, such as dense
    tensors, keep their velocity: for these parts the result is momentum SGD.  A message that is lost returns to u and v.

    Lin, Han, Mao, Wang, Dally (DGC), ICLR 2018, section 3, and their code for dense tensors; the rules for skipped rounds and
    lost messages are ours.
    """

    momentum: float
    masking: bool = True
    nesterov: bool = False
    clip: float = 0.0
    nodes: int = 1
    selection: SelectingQuantizer | None = None

    vectors = ("velocity", "unsent_velocity")
    incremental = False

    def __post_init__(self) -> None:
        check_range("momentum", self.momentum, least=0, most=0.9999)
        check_range("clip", self.clip, least=0, what="the largest norm of the mean update, 0 for none")
        check_int("nodes", self.nodes, 1, 10**9)
        check_bool("masking", self.masking)
        check_bool("nesterov", self.nesterov)

    def init(self, n: int) -> State:
        """Return velocities of zeros, float32 (n,), no round, and no masked entries."""
        return {name: np.zeros(n, np.float32) for name in self.vectors} | _state_of(UNKNOWN)

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return v + u, where both already include this update."""
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
            commit_rule=CommitRule(partial(_accumulate, decay, to_velocity, to_unsent), (1.0, None, None)),
            in_place=arithmetic.is_small(update),
            bounded=True,
            context=context,
        )

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return the velocities, without what was sent."""
        unsent, velocity, _ = compensated.commit()
        arithmetic.add(unsent, quantized, -1.0)
        entries = self._masked(compensated, quantized)
        kept = arithmetic.at(entries, velocity)
        arithmetic.put(velocity, entries, np.zeros_like(kept))
        last = UNKNOWN if compensated.context.round is None else compensated.context.round
        return {"velocity": velocity, "unsent_velocity": unsent} | _state_of(last, entries, kept)

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return v + share lost, and u with the same share of its masked values."""
        velocity, unsent = (writeable(state[name]) for name in self.vectors)
        arithmetic.add_clipped(unsent, lost, share)
        arithmetic.put(velocity, state[MASKED_AT], state[MASKED] * np.float32(share))
        return state | {"velocity": velocity, "unsent_velocity": unsent} | _state_of(int(state["velocity_round"][0]))

    def _masked(self, compensated: CompensatedUpdate, quantized: QuantizedVector) -> Indices:
        """Return the entries of `quantized` that are masked: the selected ones.  A dense vector selects none."""
        sparse = quantized.sparse()
        if not self.masking or sparse is None:
            return np.empty(0, np.int64)
        selected = np.ones(sparse.indices.size, np.bool_)
        for part in self.selection.sent_whole(compensated) if self.selection is not None else ():
            selected[slice(*np.searchsorted(sparse.indices, (part.start, part.stop)))] = False
        return sparse.indices[selected]

    def _clip_factor(self, update: Any) -> float:
        """Return the factor, at most 1, that brings the update's norm to the limit."""
        if not self.clip:
            return 1.0
        blocks = CompensatedUpdate(update).blocks()
        norm = math.sqrt(sum(float(np.square(block, dtype=np.float64).sum()) for _, block in blocks))
        limit = self.clip / math.sqrt(self.nodes)
        return limit / norm if norm > limit else 1.0


def _state_of(last: int, masked_at: Indices | None = None, masked: Vector | None = None) -> State:
    """Return what the state holds in addition to the velocities."""
    return {
        "velocity_round": np.array([last]),
        MASKED_AT: np.empty(0, np.int64) if masked_at is None else masked_at,
        MASKED: np.empty(0, np.float32) if masked is None else masked,
    }


@np.errstate(over="ignore", invalid="ignore")
def _accumulate(decay: float, to_velocity: float, to_unsent: float, unsent: Any, velocity: Any, update: Any) -> Any:
    """Update u and v, `velocity` and `unsent`, in place, and return v."""
    velocity *= decay
    unsent += velocity
    unsent += _scaled(update, to_unsent)
    velocity += _scaled(update, to_velocity)
    arithmetic.clip(velocity)
    arithmetic.clip(unsent)
    return unsent


def _scaled(update: Any, weight: float) -> Any:
    """Return the weighted update within float32: an infinity plus an infinity of the other sign would be NaN."""
    if weight == 1:
        return update
    scaled = update * weight
    if weight > 1:
        arithmetic.clip(scaled)
    return scaled
