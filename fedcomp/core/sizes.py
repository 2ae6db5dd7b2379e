"""A fraction of a number of entries, and numbers of bytes as people read them."""

import math


def format_bytes(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit, such as 12.3 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.{0 if unit == 'B' or count >= 99.95 else 1}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def ceil_fraction(fraction: float, n: int) -> int:
    """Return ceil(fraction n), or m if `fraction` is the float64 nearest m / n.  So 0.07 of 100 is 7, not 8.

    Examples:
        >>> ceil_fraction(0.07, 100), math.ceil(0.07 * 100)
        (7, 8)
    """
    m = math.ceil(fraction * n)
    return m - 1 if n and (m - 1) / n == fraction else m
