"""Natural dithering: halving levels by hand, rounding between them, and the mean."""

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext
from fedcomp.quantize import NaturalDithering
from fedcomp.quantize.random_rounding import dithered
from fedcomp.quantized import POWERS
from tests.quantize.laws import check_mean

DRAWS = 2000
LOWEST, HIGHEST = 0, 2**32 - 1


def test_halvings_of_the_norm_are_exact() -> None:
    quantized = NaturalDithering(3, "max", 8).quantize(
        CompensatedUpdate(np.array([8, -8, 4, -4, 2, -2, 0, -0.0, 3], np.float32))
    )
    assert quantized.levels.tolist() == [6, 0, 5, 1, 4, 2, 3, 3, 6]
    assert quantized.scales.tolist() == [8, 3]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (POWERS, 7, 8)
    assert quantized.dense().tolist() == [8, -8, 4, -4, 2, -2, 0, 0, 3]


@pytest.mark.parametrize("levels", [1, 2, 8, 64])
def test_every_draw_is_a_neighbouring_level_of_the_ratio(levels: int) -> None:
    grid = np.concatenate([[0], 2.0 ** np.arange(1 - levels, 1)])
    rng = np.random.default_rng(levels)
    inside = np.concatenate([rng.random(5000), 2.0 ** rng.uniform(-levels - 3, 0, 5000)]).astype(np.float32)
    for word in (LOWEST, HIGHEST):
        assert dithered(grid.astype(np.float32), levels, np.full(grid.size, word, np.uint32)).tolist() == list(
            range(levels + 1)
        )
        found = grid[dithered(-inside, levels, np.full(inside.size, word, np.uint32))]
        below = grid[np.searchsorted(grid, inside, "right") - 1]
        above = grid[np.minimum(np.searchsorted(grid, inside, "right"), levels)]
        assert ((found == below) | (found == above)).all()
        assert (found <= below).mean() > 0.99 if word == LOWEST else (found >= above).mean() > 0.99


def test_entries_between_levels_are_rounded() -> None:
    vector = np.random.default_rng(0).standard_normal(10_000, np.float32)
    quantized = NaturalDithering(8, "l2", 100).quantize(CompensatedUpdate(vector))
    found = quantized.dense()
    assert not (found == vector).any()
    ratios = np.abs(found.reshape(-1, 100) / quantized.scales[:, None])
    assert np.isin(ratios, np.concatenate([[0], 2.0 ** np.arange(-7, 1)])).all()
    assert np.unique(quantized.levels).size > 10


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", [1, 2, 8, 30])
def test_the_mean_over_draws_is_the_vector(levels: int, norm: str) -> None:
    rng = np.random.default_rng(levels)
    gauss = rng.standard_normal(40, np.float32)
    wide = (gauss * 10.0 ** rng.integers(-4, 1, 40)).astype(np.float32)
    for seed, bucket in enumerate((gauss, wide, np.ones(40, np.float32), gauss * np.float32(1e37))):
        quantized = NaturalDithering(levels, norm, 40).quantize(
            CompensatedUpdate(np.tile(bucket, DRAWS), context=EncodeContext(seed))
        )
        values = quantized.scale.values() * quantized.scales[0]
        check_mean(quantized.dense().reshape(DRAWS, 40), bucket, values)


@pytest.mark.parametrize("largest", [2.0**-149, 1e-42, 0.1, MAX_FLOAT32])
def test_the_largest_entry_of_a_bucket_keeps_its_value(largest: float) -> None:
    vector = np.tile(np.array([largest, -largest / 3], np.float32), DRAWS)
    found = NaturalDithering(8, "max", 2).quantize(CompensatedUpdate(vector)).dense()
    assert (found[::2] == np.float32(largest)).all()
