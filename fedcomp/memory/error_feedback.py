"""Error feedback: what compression dropped is added to the next update, so nothing is lost, only late."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.memory import State
from fedcomp.quantize import on_device
from fedcomp.symbols import LazySum, Symbols

LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class ErrorFeedback:
    """a = residual + update; send C(a); residual = a - C(a).

    Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019.  The law: all that was ever sent plus the residual is all
    that was ever asked to be sent, up to float rounding.
    """

    def init(self, n: int) -> State:
        """Return a residual of zeros, float32 (n,)."""
        return {"residual": np.zeros(n, np.float32)}

    def compensate(self, update: Any, state: State) -> LazySum:
        """Return residual + update."""
        residual = state.get("residual")
        if str(getattr(residual, "dtype", None)).removeprefix("torch.") != "float32":
            raise ValueError(
                f"a state without a float32 residual (it holds {', '.join(state) or 'nothing'}); init gives one"
            )
        if not isinstance(update, np.ndarray):
            return LazySum(on_device.like(residual, update), update)
        if not isinstance(residual, np.ndarray):
            residual = on_device.host(residual)
        # A finite sum of squares leaves no entry of 2^64 or more, which no finite residual can overflow with.
        with np.errstate(over="ignore", invalid="ignore"):
            safe = bool(np.isfinite(np.dot(update, update)))
        return LazySum(residual, update, in_place=safe)

    def keep(self, asked: LazySum, sent: Symbols) -> State:
        """Return residual + update - sent."""
        residual = asked.settle()
        _add(residual, sent, -1.0)
        return {"residual": residual}

    def restore(self, lost: Symbols, state: State) -> State:
        """Return residual + lost."""
        residual = state["residual"]
        with np.errstate(over="ignore"):
            _add(residual, lost, 1.0)
        if isinstance(residual, np.ndarray):
            # A sum beyond float32 would block the sender for good: it stays at the largest that can be sent.
            at = lost.sparse().indices
            residual[at] = np.clip(residual[at], -LARGEST, LARGEST)
        return {"residual": residual}


def _add(residual: Any, symbols: Symbols, weight: float) -> None:
    if isinstance(residual, np.ndarray):
        symbols.add_to(residual, weight)
    else:
        on_device.add(residual, symbols, weight)
