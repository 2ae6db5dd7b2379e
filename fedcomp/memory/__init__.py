"""What a sender remembers between rounds, one idea a file."""

from typing import Any, Protocol, TypeAlias

from fedcomp.symbols import LazySum, Symbols

State: TypeAlias = dict[str, Any]
"""Named arrays, float32 (n,) each unless its memory says otherwise: what is saved, sent to files and restored."""


class Memory(Protocol):
    """What is added before and kept after encoding.

    States are values that are handed over: the new one may reuse the memory of the one passed in.
    """

    def init(self, n: int) -> State:
        """Return the state of a sender that has sent nothing."""
        ...

    def compensate(self, update: Any, state: State) -> LazySum:
        """Return what is to be encoded.  Where encoding it can still fail, reading it leaves the state as it is."""
        ...

    def keep(self, asked: LazySum, sent: Symbols) -> State:
        """Return the state after `asked`, which `compensate` gave, was sent as `sent`."""
        ...

    def restore(self, lost: Symbols, state: State) -> State:
        """Return the state after `lost`, sent earlier, turned out never to have been taken."""
        ...
