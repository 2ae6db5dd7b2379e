"""Codec 4: kept entries, each with its own value: positions, then values."""

from dataclasses import dataclass

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import positions, values
from fedcomp.quantized import Sparse


@dataclass(frozen=True, slots=True)
class SparseValues:
    """Each position in about the entropy of independent ones, each value in the smallest format that holds it."""

    def encode(self, value: Sparse, /) -> bytes:
        """Return the body: n, k, positions (`positions.py`), values (`values.py`)."""
        begin = head.write(value.n, value.indices.size)
        return begin + positions.write(value.indices, value.n) + values.write(value.values)

    def decode(self, value: bytes, /, n: int | None = None) -> Sparse:
        """Return the sparse vector; refuse values that are NaN or infinite."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        indices, entries = positions.read(reader, total, k), values.read(reader, k)
        reader.end()
        return Sparse(total, indices, entries)
