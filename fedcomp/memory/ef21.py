"""EF21: the sender keeps an estimate that the receiver holds as well, and sends what moves it nearer to the truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import (
    BLOCK_ENTRIES,
    MAX_FLOAT32,
    CompensatedUpdate,
    EncodeContext,
    check_range,
)
from fedcomp.memory.protocol import State, check_state
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class Ef21:
    """v = (1 - momentum) v + momentum update;  send c = C(v - g);  g = g + c.

    g estimates the update; the receiver sums the c of all senders into the mean of all g (`fedcomp.flower.EF21`).  Unlike a
    residual, nothing grows without bound.  A receiver that has lost its sum raises the context's `estimate_epoch`: a state
    of another epoch counts for nothing, and all senders start from zero.  The first update is v as it is; with momentum = 1
    this is EF21 of Richtárik, Sokolov, Fatkhullin, NeurIPS 2021; below it EF21-SGDM of Fatkhullin, Tyurin, Richtárik, NeurIPS
    2023, Algorithm 1.
    """

    momentum: float

    vectors = ("estimate", "averaged_update")
    incremental = True

    def __post_init__(self) -> None:
        """Refuse a momentum outside (0, 1]."""
        check_range("momentum", self.momentum, above=0, most=1, what="the weight of the newest update")

    def init(self, n: int) -> State:
        """Return an estimate and an average of zeros, float32 (n,), and that nothing was averaged."""
        counts = {"averaged_rounds": np.array([0]), "estimate_epoch": np.array([0])}
        return {name: np.zeros(n, np.float32) for name in self.vectors} | counts

    def begins(self, state: State, epoch: int) -> bool:
        """Return whether nothing was sent from `state` in this `epoch`."""
        return not int(state["averaged_rounds"][0]) or int(state["estimate_epoch"][0]) != epoch

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return v - g."""
        check_state(state, self.vectors, update.shape[0])
        if self.begins(state, context.estimate_epoch):
            state = self.init(update.shape[0])
        estimate, average = (arithmetic.beside(state[name], update) for name in self.vectors)
        rounds = int(state["averaged_rounds"][0])
        newest = self.momentum if rounds else 1.0
        return _Correction(
            *(average, update, estimate),
            weights=(1.0 - newest, newest, -1.0),
            in_place=arithmetic.small(update),
            bounded=True,
            context=context,
            hint=rounds,
        )

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return g + sent, and v."""
        asked.settle()
        average, estimate = asked.parts
        arithmetic.add(estimate, sent, 1.0)
        arithmetic.bound(estimate, sent)
        return {
            "estimate": estimate,
            "averaged_update": average,
            "averaged_rounds": np.array([asked.hint + 1]),
            "estimate_epoch": np.array([asked.context.estimate_epoch]),
        }

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return g - lost: the receiver never added it."""
        estimate = state["estimate"]
        arithmetic.add(estimate, lost, -1.0)
        arithmetic.bound(estimate, lost)
        return state


class _Correction(CompensatedUpdate):
    """The difference v' - g as it is after this update; settling it brings v to v'."""

    __slots__ = ()

    def settle(self) -> Any:
        """Leave v' in the memory of v, and return it."""
        if self.weights[2:]:
            step = BLOCK_ENTRIES if self.on_host else self.n
            for start in range(0, self.n, step):
                self._average(start, min(start + step, self.n))
            self._settled()
        return self.parts[0]

    def _average(self, start: int, end: int) -> tuple[Any, Any]:
        average, update, estimate = (part[start:end] for part in self.parts)
        older, newest, _ = self.weights
        average *= older
        average += update if newest == 1 else update * newest
        return estimate, average

    def _settle(self, start: int, end: int) -> Any:
        estimate, average = self._average(start, end)
        with np.errstate(over="ignore"):
            difference = average - estimate
        if not arithmetic.small(difference):
            np.clip(difference, -MAX_FLOAT32, MAX_FLOAT32, out=difference)
        return difference

    def _settled(self) -> None:
        average, _, estimate = self.parts
        self.parts, self.weights, self.in_place = (average, estimate), (1.0, -1.0), False
