"""What a sender remembers between rounds, one idea a file."""

from typing import Any, Protocol, TypeAlias

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, dtype_name
from fedcomp.quantized import QuantizedVector

State: TypeAlias = dict[str, Any]
"""Named arrays: what is saved, sent to files and restored.

Those that a memory lists in `vectors` are float32 (n,); of the others it knows itself what they are.
"""


class Memory(Protocol):
    """What is added before and kept after encoding.

    States are values that are handed over: the new one may reuse the memory of the one passed in.  Names in a state are
    shared by memories that mean the same by them, so that what one keeps is not lost when another takes over.
    """

    @property
    def vectors(self) -> tuple[str, ...]:
        """The names of the state's arrays that are float32 (n,)."""
        ...

    @property
    def incremental(self) -> bool:
        """Whether what is sent adds up to an estimate of the update, instead of to the updates: the receiver must sum it."""
        ...

    def init(self, n: int) -> State:
        """Return the state of a sender that has sent nothing."""
        ...

    def compensate(self, update: Any, state: State, context: EncodeContext = EncodeContext()) -> CompensatedUpdate:
        """Return what is to be encoded.  Where encoding it can still fail, reading it leaves the state as it is."""
        ...

    def update(self, asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        """Return the state after `asked`, which `compensate` gave, was sent as `sent`."""
        ...

    def rollback(self, lost: QuantizedVector, state: State) -> State:
        """Return the state after `lost`, sent earlier, turned out never to have been taken."""
        ...


class Incremental(Memory, Protocol):
    """A memory whose messages the receiver sums into an estimate, which the sender holds as well."""

    def begins(self, state: State, epoch: int) -> bool:
        """Return whether the next message is the first of its estimate in this `epoch`: the receiver's sum holds none of it."""
        ...


def check_state(state: State, vectors: tuple[str, ...], n: int) -> None:
    """Refuse a state without these arrays, float32 (n,)."""
    for name in vectors:
        array = state.get(name)
        dtype = dtype_name(getattr(array, "dtype", None))
        if dtype != "float32":
            raise ValueError(
                f"a state without a float32 {name} (it holds {', '.join(state) or 'nothing'}); init gives one"
            )
        shape = tuple(np.shape(array))  # type: ignore[arg-type]
        if shape != (n,):
            raise ValueError(f"an update of {n} entries; the state's {name} has the shape {shape}")
