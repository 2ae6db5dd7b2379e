"""One magnitude for all: the mean over the kept entries."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate
from fedcomp.quantize import Ternarize, TopK
from fedcomp.quantized import Sparse


def test_the_magnitude_is_the_mean_of_the_kept_magnitudes_and_not_over_the_zeros() -> None:
    kept = TopK(0.01).quantize(
        CompensatedUpdate(np.concatenate([np.array([3, -1], np.float32), np.zeros(198, np.float32)]))
    )
    ternary = Ternarize().quantize(kept)
    assert ternary.magnitude == 2
    assert ternary.negative.tolist() == [False, True]
    assert ternary.sparse().values.tolist() == [2, -2]


def test_nothing_kept_has_no_magnitude_and_decodes_to_zeros() -> None:
    nothing = Ternarize().quantize(Sparse(5, np.empty(0, np.int64), np.empty(0, np.float32)))
    assert nothing.magnitude == 0
    assert nothing.dense().tolist() == [0] * 5


def test_the_mean_keeps_small_entries_next_to_large_ones() -> None:
    values = np.full(4 * BLOCK_ENTRIES + 1, 1, np.float32)
    values[0] = 2**25
    ternary = Ternarize().quantize(Sparse(values.size, np.arange(values.size), values))
    assert ternary.magnitude == np.float32((2**25 + 4 * BLOCK_ENTRIES) / values.size)


@pytest.mark.parametrize("value", [2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)])
def test_the_ends_of_float32_are_their_own_mean(value: float) -> None:
    values = np.full(3 * BLOCK_ENTRIES, value, np.float32)
    ternary = Ternarize().quantize(Sparse(values.size, np.arange(values.size), values))
    assert ternary.magnitude == np.float32(value)
