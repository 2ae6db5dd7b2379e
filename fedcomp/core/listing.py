"""Long lists as people read them: the first few, and the number of the others."""

from collections.abc import Sequence


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first `most` of `texts`, and the number of the others.

    Examples:
        >>> listed(["a", "b", "c", "d"], 2)
        'a, b and 2 more'
    """
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
