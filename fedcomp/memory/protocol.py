"""The contract of a memory, what a sender remembers between rounds, and the memory of a sender that remembers nothing."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, dtype_name
from fedcomp.quantized import QuantizedVector

State: TypeAlias = dict[str, Any]
"""Named arrays: a value that can be saved and loaded.  The arrays in a memory's `vectors` are float32 (n,), numpy or torch."""


class Memory(Protocol):
    """What is added to an update before it is encoded, and what is kept afterwards.

    A state is handed over: the new state may reuse the arrays of the old one.  Memories give arrays of one meaning the same
    name, so that one memory can continue from the state of another.
    """

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the state's arrays that are float32 (n,)."""
        ...

    @property
    def incremental(self) -> bool:
        """Whether messages are corrections that add up to an estimate of the update: the receiver must sum them."""
        ...

    def init(self, n: int) -> State:
        """Return the state of a sender that has sent nothing."""
        ...

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return the vector to encode, for `update`, float32 (n,).  Reading the result changes `state` only if `in_place`."""
        ...

    def update(self, compensated: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        """Return the state after `compensated`, made from `state`, was sent as `quantized`."""
        ...

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return the state after it turned out that the receiver never took this share of `lost`, which was sent earlier."""
        ...


class Incremental(Memory, Protocol):
    """A memory whose messages the receiver sums into an estimate, which the sender holds as well."""

    def begins(self, state: State, epoch: int) -> bool:
        """Return whether the next message is the first of its estimate in this `epoch`: the receiver's sum holds none yet."""
        ...


def check_state(state: State, vectors: tuple[str, ...], n: int) -> None:
    """Raise `ValueError` for a state without these arrays, float32 (n,)."""
    for name in vectors:
        array = state.get(name)
        if dtype_name(getattr(array, "dtype", None)) != "float32":
            held = ", ".join(state) or "nothing"
            raise ValueError(f"a state without a float32 {name} (it holds {held}); init returns one")
        shape = tuple(np.shape(array))  # type: ignore[arg-type]
        if shape != (n,):
            raise ValueError(f"an update of {n} entries; the state's {name} has the shape {shape}")


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

    def rollback(self, lost: QuantizedVector, state: State, share: float = 1.0) -> State:
        """Return the empty state."""
        return {}
