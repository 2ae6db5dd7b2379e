"""A sender that remembers nothing."""

from dataclasses import dataclass
from typing import Any

from fedcomp.lazy_sum import LazySum
from fedcomp.memory import State
from fedcomp.occasion import NOWHERE, Occasion
from fedcomp.symbols import Symbols


@dataclass(frozen=True, slots=True)
class NoMemory:
    """Send what is asked; what compression drops is lost, and so is an update that never arrives."""

    vectors = ()
    incremental = False

    def init(self, n: int) -> State:
        """Return an empty state."""
        return {}

    def compensate(self, update: Any, state: State, occasion: Occasion = NOWHERE) -> LazySum:
        """Return the update."""
        return LazySum(update, occasion=occasion)

    def keep(self, asked: LazySum, sent: Symbols) -> State:
        """Return the empty state."""
        return {}

    def restore(self, lost: Symbols, state: State) -> State:
        """Return the empty state."""
        return {}
