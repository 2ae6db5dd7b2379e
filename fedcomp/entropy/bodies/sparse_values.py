"""Kept entries with a value of their own each: positions, then values."""

from dataclasses import dataclass

from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import positions, values
from fedcomp.quantized import Sparse


@dataclass(frozen=True, slots=True)
class SparseValues:
    """Sparse symbols: each position in about the entropy of independent ones, each value in the format that it fits."""

    def encode(self, value: Sparse, /) -> bytes:
        """Return the body: n, k, positions (`positions.py`), values (`values.py`)."""
        return b"".join(
            (
                head.put(value.n, value.indices.size),
                positions.put(value.indices, value.n),
                values.put(value.values),
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> Sparse:
        """Return the symbols; values that are NaN or infinite are refused."""
        total, k, at = head.take(value, n)
        indices, at = positions.take(value, at, total, k)
        entries, at = values.take(value, at, k)
        head.check_end(value, at)
        return Sparse(total, indices, entries)
