"""Learning-rate schedules over the rounds of a run, by texts such as ``cosine(last=0.1)``.

A schedule is a function of the progress of the run, finished rounds over all rounds: 0 in the first round, below 1 in the
last.  It returns the factor of the learning rate.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from fedcomp.core import build, check_range

Schedule = Callable[[float], float]


def constant() -> Schedule:
    """Return the schedule that is always 1."""
    return lambda _: 1.0


def cosine(last: float = 0.0) -> Schedule:
    """Return half a cosine from 1 towards `last`, without warm restarts.  Loshchilov and Hutter, ICLR 2017, eq. 5."""
    check_range("last", last, least=0, most=1)
    return lambda share: last + (1 - last) * (1 + math.cos(math.pi * share)) / 2


def exponential(last: float = 0.1) -> Schedule:
    """Return ``last ** share``: a constant ratio from round to round, from 1 towards `last`, above 0."""
    check_range("last", last, above=0, most=1)
    return lambda share: last**share


def steps(at: Sequence[float] = (0.5, 0.75), factor: float = 0.1) -> Schedule:
    """Return `factor` to the power of the number of shares in `at` that are reached: 1, from half of the rounds on 0.1, ..."""
    check_range("factor", factor, above=0, most=1)
    if not isinstance(at, list | tuple):
        raise ValueError(f"at is {at!r}; a list of shares of the rounds is needed, as in [0.5, 0.75]")
    for share in at:
        check_range("a share in at", share, least=0, most=1)
    return lambda share: factor ** sum(share >= each for each in at)


SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    schedule.__name__: schedule for schedule in (constant, cosine, exponential, steps)
}


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that `text` describes; raise `ValueError` for an unknown schedule and a setting out of range.

    Examples:
        >>> [parse_schedule("steps([0.5], factor=0.1)")(share) for share in (0.0, 0.4, 0.5)]
        [1.0, 1.0, 0.1]
    """
    return build(text, SCHEDULES, "learning-rate schedule")
