"""Whether the published model is late: whether the nodes go on asking for what is not published yet.

`Lateness` tells whether accuracy would be missing at the end of a run, and `Repetition` whether the run would go wrong.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedcomp.core import Vector, check_int, check_range
from fedcomp.sync import Origin

CERTAIN = 3.0
"""A mean of this many standard errors above 0 is not chance."""
FEWEST = 10
"""With fewer rounds, nothing can be told."""
KEPT, TOO_OFTEN, FAR_TOO_OFTEN = 0.7, 1.25, 5.0
"""The weight of the earlier `Repetition.times` when that of a round is measured, the largest that surely does no harm, and the
largest that named compressors are not warned of."""
FIRST_PAUSE, LAST_PAUSE = 16, 0.1
"""The rounds of the first pause, and the share of all rounds of the last one."""


@dataclass(slots=True)
class Lateness:
    """What the changes of some rounds have in common with the unpublished change, and with all changes since an origin.

    If the unpublished change is noise, the changes of later rounds have nothing in common with it, or undo it.  If it is
    something that the nodes have learned, they learn it again in each round, because their model lacks it.

    Attributes:
        rounds: The number of rounds.
        unpublished: The sum over the rounds of the scalar product of a round's change with what was unpublished before it.
        unpublished_squares: The sum of the squares of these scalar products.
        whole: The sum of the scalar products with all that was changed since the origin, published or not.
        whole_squares: The sum of the squares of these scalar products.
    """

    rounds: int = 0
    unpublished: float = 0.0
    unpublished_squares: float = 0.0
    whole: float = 0.0
    whole_squares: float = 0.0

    def add(self, change: Vector, residual: Vector, origin: Origin) -> None:
        """Count a round with `change`, before which `residual` was unpublished; `origin` counts what was published.

        The vectors are float32 (n,).
        """
        unpublished = product(change, residual)
        whole = unpublished + origin.product(change)
        if not math.isfinite(whole):  # such a change is not published
            return
        self.rounds += 1
        self.unpublished += unpublished
        self.unpublished_squares += unpublished**2
        self.whole += whole
        self.whole_squares += whole**2

    @property
    def share(self) -> float:
        """The share of the unpublished change in what the rounds have in common with all changes; 0 if it may be chance."""
        both = ((self.unpublished, self.unpublished_squares), (self.whole, self.whole_squares))
        if self.rounds < FEWEST or not all(_is_certain(self.rounds, *sums) for sums in both):
            return 0.0
        return self.unpublished / self.whole

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_int("rounds", self.rounds, 0, 2**63 - 1)
        for name in ("unpublished", "whole"):
            check_range(name, getattr(self, name))
            check_range(f"{name}_squares", getattr(self, f"{name}_squares"), least=0)


@dataclass(slots=True)
class Repetition:
    """How often the nodes ask again for what is unpublished.

    A sum of changes of which little is published holds a change of one direction once for each round: the nodes ask for it
    again, because they do not have it.  What is published in the end is then far too much, and the nodes undo it as late.  So
    the residual must pause: versions leave nothing out for some rounds, each time for twice as many.  A run that has paused
    ends with a pause.

    Attributes:
        times: How many times the unpublished change holds what a round asks for, in the last rounds: the scalar product of a
            round's change with what was unpublished before it, over the squared norm of the change.
        pause: The rounds of the newest pause, 0 before the first.
        until: The last round of it.
    """

    times: float = 0.0
    pause: int = 0
    until: int = 0

    def measure(self, change: Vector, residual: Vector) -> None:
        """Count a round with `change`, before which `residual` was unpublished, both float32 (n,)."""
        norm = product(change, change)
        self.times = KEPT * self.times + (1 - KEPT) * (product(change, residual) / norm if 0 < norm < math.inf else 0.0)

    def add(self, change: Vector, residual: Vector, server_round: int) -> None:
        """Count a round, unless it is in a pause; if the nodes ask too often, a pause begins with the next round."""
        if server_round <= self.until:
            return
        self.measure(change, residual)
        if self.times > TOO_OFTEN:
            self.pause = 2 * self.pause or FIRST_PAUSE
            self.times, self.until = 0.0, server_round + self.pause

    def pauses(self, server_round: int, num_rounds: int) -> bool:
        """Return whether the version of this round, of so many, leaves nothing out."""
        return server_round <= self.until or (self.pause > 0 and server_round > (1 - LAST_PAUSE) * num_rounds)

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_range("times", self.times, most=TOO_OFTEN)
        check_int("pause", self.pause, 0, 2**63 - 1)
        check_int("until", self.until, 0, 2**63 - 1)


def product(one: Vector, other: Vector) -> float:
    """Return the scalar product of two vectors, float32 (n,), added in float64."""
    return float(np.einsum("i,i", one, other, dtype=np.float64))


def _is_certain(count: int, total: float, squares: float) -> bool:
    """Return whether the mean of `count` numbers with this sum and this sum of squares is certainly above 0."""
    variance = max(0.0, squares / count - (total / count) ** 2)
    return total / count > CERTAIN * math.sqrt(variance / count)
