"""Whether the mean of measured numbers is above 0, or may be so by chance."""

import math

CERTAIN = 3.0
"""A mean of this many standard errors above 0 is not chance."""


def is_surely_positive(count: int, total: float, squares: float) -> bool:
    """Return whether the mean of `count` numbers with this sum and this sum of squares is above 0 by more than chance.

    There is one number at least; of a few, little can be told.
    """
    mean = total / count
    return mean > CERTAIN * math.sqrt(max(0.0, squares / count - mean * mean) / count)
