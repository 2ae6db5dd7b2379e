"""Top-k of every chunk."""

import math

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Vector
from fedcomp.quantize import ChunkedTopK


def slow_chunked(update: Vector, density: float, chunk: int) -> list[int]:
    """Return the kept indices, by a stable sort of every chunk, the last one padded with zeros."""
    rows = math.ceil(update.size / chunk)
    table = np.zeros(rows * chunk, np.float32)
    table[: update.size] = np.abs(update)
    rank = np.argsort(np.argsort(-table.reshape(rows, chunk), axis=1, kind="stable"), axis=1)
    kept = np.full((rows, 1), max(1, math.ceil(density * chunk)))
    kept[-1] = max(1, math.ceil(density * (update.size - (rows - 1) * chunk)))
    found: list[int] = np.flatnonzero((rank < kept).ravel() & (table > 0)).tolist()
    return found


def test_each_chunk_keeps_its_own_largest() -> None:
    update = np.array([1, -9, 2, 0.1, 0.3, -0.2, 7], np.float32)
    assert ChunkedTopK(1 / 3, 3).quantize(CompensatedUpdate(update)).indices.tolist() == [1, 4, 6]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000, 4096, 5000, 1 << 17])
@pytest.mark.parametrize("density", [1e-6, 0.01, 1 / 64, 0.3, 0.6, 1.0])
def test_the_kept_entries_are_those_of_a_sort_of_each_chunk(chunk: int, density: float) -> None:
    rng = np.random.default_rng(chunk)
    sizes = (1, 31, 4096, 9001, 2 * BLOCK_ENTRIES + 77) if chunk > 2 else (1, 31, 999)
    for n in sizes:
        for update in (rng.standard_normal(n, np.float32), rng.integers(-2, 3, n).astype(np.float32)):
            found = ChunkedTopK(density, chunk).quantize(CompensatedUpdate(update))
            assert found.indices.tolist() == slow_chunked(update, density, chunk)
            assert np.array_equal(found.values, update[found.indices])


def test_zeros_are_never_kept() -> None:
    assert not ChunkedTopK(0.5, 4).quantize(CompensatedUpdate(np.zeros(10, np.float32))).indices.size
