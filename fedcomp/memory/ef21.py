"""EF21: the sender keeps an estimate that the receiver holds as well, and sends what moves it nearer to the truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.lazy_sum import BLOCK, LARGEST, LazySum
from fedcomp.memory import State, arithmetic, check
from fedcomp.occasion import NOWHERE, Occasion
from fedcomp.settings import within
from fedcomp.symbols import Symbols


@dataclass(frozen=True, slots=True)
class Ef21:
    """v = (1 - momentum) v + momentum update;  send c = C(v - g);  g = g + c.

    g estimates the update; the receiver sums the c of all senders into the mean of all g (`fedcomp.flower.EF21`).  Nothing
    grows without end, as a residual may.  The first update is v as it is; with momentum = 1 this is EF21 of Richtárik,
    Sokolov, Fatkhullin, NeurIPS 2021; below it EF21-SGDM of Fatkhullin, Tyurin, Richtárik, NeurIPS 2023, Algorithm 1.
    """

    momentum: float

    vectors = ("estimate", "averaged_update")
    incremental = True

    def __post_init__(self) -> None:
        """Refuse a momentum outside (0, 1]."""
        within("momentum", self.momentum, above=0, most=1, what="the weight of the newest update")

    def init(self, n: int) -> State:
        """Return an estimate and an average of zeros, float32 (n,), and that nothing was averaged."""
        return {name: np.zeros(n, np.float32) for name in self.vectors} | {"averaged_rounds": np.array([0])}

    def compensate(self, update: Any, state: State, occasion: Occasion = NOWHERE) -> LazySum:
        """Return v - g."""
        check(state, self.vectors, update.shape[0])
        estimate, average = (arithmetic.beside(state[name], update) for name in self.vectors)
        rounds = int(state["averaged_rounds"][0])
        newest = self.momentum if rounds else 1.0
        return _Correction(
            *(estimate, average, update),
            weights=(-1.0, 1.0 - newest, newest),
            in_place=arithmetic.small(update),
            bounded=True,
            occasion=occasion,
            hint=rounds,
        )

    def keep(self, asked: LazySum, sent: Symbols) -> State:
        """Return g + sent, and v."""
        asked.settle()
        estimate, average = asked.parts
        arithmetic.add(estimate, sent, 1.0)
        arithmetic.bound(estimate, sent)
        return {"estimate": estimate, "averaged_update": average, "averaged_rounds": np.array([asked.hint + 1])}

    def restore(self, lost: Symbols, state: State) -> State:
        """Return g - lost: the receiver never added it."""
        estimate = state["estimate"]
        arithmetic.add(estimate, lost, -1.0)
        arithmetic.bound(estimate, lost)
        return state


class _Correction(LazySum):
    """The difference v' - g as it is after this update; settling it brings v to v'."""

    __slots__ = ()

    def settle(self) -> Any:
        """Leave v' in the memory of v, and return it."""
        if self.weights[2:]:
            step = BLOCK if self.on_host else self.n
            for start in range(0, self.n, step):
                self._average(start, min(start + step, self.n))
            self._settled()
        return self.parts[1]

    def _average(self, start: int, end: int) -> tuple[Any, Any]:
        estimate, average, update = (part[start:end] for part in self.parts)
        _, older, newest = self.weights
        if older != 1:
            average *= older
        average += update if newest == 1 else update * newest
        return estimate, average

    def _settle(self, start: int, end: int) -> Any:
        estimate, average = self._average(start, end)
        with np.errstate(over="ignore"):
            difference = average - estimate
        if not arithmetic.small(difference):
            np.clip(difference, -LARGEST, LARGEST, out=difference)
        return difference

    def _settled(self) -> None:
        self.parts, self.weights, self.in_place = self.parts[:2], (-1.0, 1.0), False
