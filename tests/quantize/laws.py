"""Statistical laws, checked over many draws of one vector, each within four standard errors."""

import numpy as np
from numpy.typing import NDArray

Many = NDArray[np.float32]
"""One row a draw."""


def check_mean(draws: Many, expected: NDArray[np.float32]) -> None:
    """The mean of each entry over the draws is the expected one, within four standard errors and float32 rounding."""
    rows = draws.astype(np.float64)
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    apart = np.abs(rows.mean(axis=0) - expected)
    assert (apart <= 4 * error + 2**-22 * np.abs(draws).max(axis=0)).all(), float((apart / (error + 1e-300)).max())


def check_at_most(values: NDArray[np.float64], bound: float) -> None:
    """The mean of values, one a draw, is at most `bound`, within four standard errors."""
    error = values.std(ddof=1) / np.sqrt(values.size)
    assert values.mean() <= bound + 4 * error
