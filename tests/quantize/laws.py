"""Statistical laws, checked over many draws of one vector, within four standard errors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import Quantizer


def check_mean(
    draws: NDArray[np.float32], expected: NDArray[np.float32], values: NDArray[Any], scale: float = 0.0
) -> None:
    """The mean over the draws, one a row, is `expected`; each entry takes one of the two `values` (ascending) next to it.

    Such a draw has the variance (x - low) (high - x), known without the draws.  To four standard errors come what Bernstein's
    inequality adds for values that are rarely drawn, 8/3 of high - low over the draws, so that either side is passed with odds
    below e^-8; and float32 rounding, of the values or of `scale` where they are differences of such.
    """
    wide, grid = expected.astype(np.float64), values.astype(np.float64)
    place = np.clip(np.searchsorted(grid, wide), 1, grid.size - 1)
    low, high = grid[place - 1], grid[place]
    variance = np.maximum((wide - low) * (high - wide), 0)
    rounding = 2**-22 * np.maximum(np.maximum(np.abs(low), np.abs(high)), scale)
    allowed = 4 * np.sqrt(variance / len(draws)) + 8 / 3 * (high - low) / len(draws) + rounding
    assert ((draws >= low - rounding) & (draws <= high + rounding)).all()
    assert (np.abs(draws.mean(axis=0, dtype=np.float64) - wide) <= allowed).all()


def squared_bias(quantizer: Quantizer[CompensatedUpdate, Any], vector: Vector, seeds: int) -> float:
    """Return the squared bias of a quantizer as a share of the squared norm, from the means of two halves of the seeds.

    The product of two independent means' errors is the squared bias, without the part of the variance.
    """
    means = np.zeros((2, vector.size))
    for seed in range(seeds):
        quantized = quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(seed)))
        quantized.add_to(means[seed % 2], 2 / seeds)
    errors = means - vector
    return float(errors[0] @ errors[1]) / float(vector.astype(np.float64) @ vector)


def check_at_most(values: NDArray[np.float64], bound: float) -> None:
    """The mean of values, one a draw, is at most `bound`, within four standard errors."""
    error = values.std(ddof=1) / np.sqrt(values.size)
    assert values.mean() <= bound + 4 * error
