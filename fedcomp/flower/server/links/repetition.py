"""How often the nodes ask again for what is unpublished; if too often, versions leave nothing out for some rounds."""

from dataclasses import dataclass

from fedcomp.core import check_int, check_range

KEPT, TOO_OFTEN, FAR_TOO_OFTEN = 0.7, 3.0, 5.0
"""The weight of the earlier `Repetition.times` when that of a round is measured, the largest that surely does no harm, and the
largest for which there is no warning where the user has named the compressor.

On Fashion-MNIST with all classes on each node, a CNN had up to 2.35, and with pauses it sent four times as many bytes.
"""
FIRST_PAUSE = 16
"""The rounds of the first pause."""


@dataclass(slots=True)
class Repetition:
    """How often the nodes ask again for what is unpublished.

    Nodes that want the same step ask for it in each round, because they do not have it.  The unpublished change then holds it
    once for each round, and what is published in the end is far too much.  So versions must leave nothing out for some rounds:
    the residual pauses, each time for twice as many rounds.

    Attributes:
        times: How many times the unpublished change holds what a round asks for, in the last rounds (`AskedFor.times`).
        pause: The rounds of the newest pause, 0 before the first.
        until: The last round of it.
    """

    times: float = 0.0
    pause: int = 0
    until: int = 0

    def measure(self, times: float) -> None:
        """Count a round in which the unpublished change holds what the round asks for `times` times."""
        self.times = KEPT * self.times + (1 - KEPT) * times

    def add(self, times: float, server_round: int) -> None:
        """Count a round, unless it is in a pause; if the nodes ask too often, a pause begins with the next round."""
        if server_round <= self.until:
            return
        self.measure(times)
        if self.times > TOO_OFTEN:
            self.pause = 2 * self.pause or FIRST_PAUSE
            self.times, self.until = 0.0, server_round + self.pause

    def pauses(self, server_round: int) -> bool:
        """Return whether the version of this round leaves nothing out."""
        return server_round <= self.until

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_range("times", self.times)
        check_int("pause", self.pause, 0, 2**63 - 1)
        check_int("until", self.until, 0, 2**63 - 1)
