"""The vector of a key frame: as float32, or in fewer bytes if a code represents it without loss.

There are two such codes.  Float16 and bfloat16 models are values in a smaller format (codec 4).  A vector that was rounded to
a coarse grid (`rounding.py`) consists of whole steps (codec 11).
"""

import numpy as np

from fedcomp.core import Vector
from fedcomp.entropy import SparseValues, StepsCode
from fedcomp.errors import CorruptError
from fedcomp.quantized import Sparse, Steps, counts_of
from fedcomp.wire.body import decode_body
from fedcomp.wire.codec_ids import NO_BODY, STEPS_CODEC
from fedcomp.wire.layout import Layout

VALUES_CODEC = 4
MOST_KEPT = 0.9
FREE_ENTRIES = 1 << 16
"""Longer vectors need at least a bit per entry: a few bytes from the wire must not claim a vector of gigabytes."""


def write_vector(vector: Vector) -> tuple[int, bytes]:
    """Return a codec id and the smallest body found that holds `vector`, float32 (n,), to the bit.

    If no code makes the first 65,536 entries smaller, the whole vector is float32: one value that needs 32 bits gives all
    values 32 bits.
    """
    plain = NO_BODY, vector.astype("<f4").tobytes()
    if vector.size > FREE_ENTRIES and write_vector(vector[:FREE_ENTRIES])[0] == NO_BODY:
        return plain
    bodies: list[tuple[int, bytes]] = []
    counts = counts_of(vector)
    if counts is not None and not np.signbit(vector[counts == 0]).any():  # -0 is no step
        indices = np.flatnonzero(counts)
        bodies.append((STEPS_CODEC, StepsCode().encode(Steps(vector.size, indices, counts[indices]))))
    kept = np.flatnonzero(vector.view(np.uint32))  # -0 has bits
    if kept.size > MOST_KEPT * vector.size:  # then positions take more than the zeros
        kept = np.arange(vector.size)
    bodies.append((VALUES_CODEC, SparseValues().encode(Sparse(vector.size, kept, vector[kept]))))
    bodies = [(codec, body) for codec, body in bodies if _is_enough(body, vector.size)]
    return min([plain, *bodies], key=lambda pair: len(pair[1]))


def read_vector(codec: int, body: bytes, layout: Layout) -> Vector:
    """Return the vector, float32 (n,), that `write_vector` wrote for a model of `layout`.

    Raises `FedcompError` for other bytes, and for NaN and infinity.
    """
    if codec == NO_BODY:
        if len(body) != 4 * layout.n:
            raise CorruptError(f"a vector of {len(body)} bytes; the layout needs {4 * layout.n}")
        vector = np.frombuffer(body, "<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise CorruptError("the key frame holds NaN or infinity")
        return vector
    if codec not in (VALUES_CODEC, STEPS_CODEC):
        raise CorruptError(f"a key frame of codec {codec}; {NO_BODY}, {VALUES_CODEC} or {STEPS_CODEC} is needed")
    if not _is_enough(body, layout.n):
        raise CorruptError(f"a vector of {layout.n} entries in {len(body)} bytes; each entry takes a bit at least")
    return decode_body(codec, body, layout).dense()


def _is_enough(body: bytes, n: int) -> bool:
    return n <= FREE_ENTRIES or n <= 8 * len(body)
