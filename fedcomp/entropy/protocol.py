"""The contract of an entropy code: a quantized vector to bytes and back, without loss."""

from typing import Protocol, TypeVar

from fedcomp.quantized import QuantizedVector

Q = TypeVar("Q", bound=QuantizedVector)

MAX_ENTRIES = 1 << 31
"""Longer vectors are refused, and so is a body that claims more entries."""


class EntropyCode(Protocol[Q]):
    """A lossless stage.  Its body contains everything that a decoder needs."""

    def encode(self, value: Q, /) -> bytes:
        """Return the body of `value`."""
        ...

    def decode(self, value: bytes, /, n: int | None = None) -> Q:
        """Return the quantized vector of the body `value`; `n` is the required number of entries, if it is known.

        Raises `FedcompError` for a body that is damaged, contradicts itself or has another number of entries than `n`.  Takes
        no memory for more than the body can hold before these checks.
        """
        ...
