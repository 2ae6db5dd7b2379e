"""EF21: sender and receiver hold the same estimate of the update, and the sender sends corrections to it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import CommitRule, CompensatedUpdate, EncodeContext, check_range, writeable
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class Ef21:
    """v = (1 - momentum) v + momentum update;  send c = C(v - g);  g = g + c.

    g estimates the update; the receiver sums the c of all senders into the mean of all g (`fedcomp.flower.EF21`).  Unlike a
    residual, nothing grows without bound.  A receiver that has lost its sum raises the context's `estimate_epoch`: a state
    from another epoch is ignored, and all senders start from zero.  The first update initializes v.

    With momentum = 1 this is EF21 of Richtárik, Sokolov, Fatkhullin, NeurIPS 2021; with less it is EF21-SGDM of Fatkhullin,
    Tyurin, Richtárik, NeurIPS 2023, Algorithm 1.
    """

    momentum: float

    vectors = ("estimate", "averaged_update")
    incremental = True

    def __post_init__(self) -> None:
        check_range("momentum", self.momentum, above=0, most=1, what="the weight of the newest update")

    def init(self, n: int) -> State:
        """Return an estimate and an average of zeros, float32 (n,), no rounds, and epoch 0."""
        counts = {"averaged_rounds": np.array([0]), "estimate_epoch": np.array([0])}
        return {name: np.zeros(n, np.float32) for name in self.vectors} | counts

    def begins(self, state: State, epoch: int) -> bool:
        """Return whether nothing was sent from `state` in this `epoch`."""
        return not int(state["averaged_rounds"][0]) or int(state["estimate_epoch"][0]) != epoch

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return v - g, where v already includes this update."""
        check_state(state, self.vectors, update.shape[0])
        begins = self.begins(state, context.estimate_epoch)
        if begins:
            state = self.init(update.shape[0])
        newest = 1.0 if begins else self.momentum
        estimate, average = (arithmetic.as_like(state[name], update) for name in self.vectors)
        return CompensatedUpdate(
            *(average, update, estimate),
            weights=(1.0 - newest, newest, -1.0),
            commit_rule=CommitRule(partial(_average, newest), (1.0, None, -1.0)),
            in_place=arithmetic.is_small(update),
            bounded=True,
            context=context,
        )

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return g + quantized, and v."""
        average, _, estimate = compensated.commit()
        arithmetic.add_clipped(estimate, quantized, 1.0)
        epoch = compensated.context.estimate_epoch
        rounds = 0 if self.begins(state, epoch) else int(state["averaged_rounds"][0])
        return {
            "estimate": estimate,
            "averaged_update": average,
            "averaged_rounds": np.array([rounds + 1]),
            "estimate_epoch": np.array([epoch]),
        }

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return g - share lost: the receiver never added it.

        If the first message of an epoch is lost, the epoch has not begun.
        """
        if share == 1 and int(state["averaged_rounds"][0]) == 1:
            return self.init(len(state["estimate"]))
        estimate = writeable(state["estimate"])
        arithmetic.add_clipped(estimate, lost, -share)
        return state | {"estimate": estimate}


@np.errstate(over="ignore")
def _average(newest: float, average: Any, update: Any, estimate: Any) -> Any:
    """Update v, `average`, in place, and return v - g."""
    average *= 1.0 - newest
    average += update if newest == 1 else update * newest
    difference = average - estimate
    arithmetic.clip(difference)
    return difference
