"""A sender that remembers nothing."""

from dataclasses import dataclass
from typing import Any

from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.memory.protocol import State
from fedcomp.quantized import QuantizedVector


@dataclass(frozen=True, slots=True)
class NoMemory:
    """Send C(update); the error of compression is lost, and so is an update that never arrives."""

    vectors = ()
    incremental = False

    def init(self, n: int) -> State:
        """Return an empty state."""
        return {}

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return the update."""
        return CompensatedUpdate(update, context=context)

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return the empty state."""
        return {}

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return the empty state."""
        return {}
