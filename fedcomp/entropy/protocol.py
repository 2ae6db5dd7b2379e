"""Symbols to bytes and back, without loss: one code a file."""

from typing import Protocol, TypeVar

from fedcomp.quantized import QuantizedVector

S = TypeVar("S", bound=QuantizedVector)

MAX_ENTRIES = 1 << 31
"""Vectors longer than this are refused; a body that claims more lies."""


class EntropyCode(Protocol[S]):
    """A lossless stage; its body says all that is needed to decode it."""

    def encode(self, value: S, /) -> bytes:
        """Return the body."""
        ...

    def decode(self, value: bytes, /, n: int | None = None) -> S:
        """Return the symbols.

        Raises `FedcompError` for a body that is damaged, contradicts itself or, where `n` is given, is of another length;
        all before memory is taken for more than the body can hold.
        """
        ...
