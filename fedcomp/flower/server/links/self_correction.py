"""How fast training corrects an error of the model: which share of it the nodes undo in one round."""

from dataclasses import dataclass, field

import numpy as np

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.links.chance import is_surely_positive
from fedcomp.flower.server.links.sketch import Sketch, check_sketch

FEWEST = 10
"""With fewer rounds, nothing can be told."""
LEAST_ERROR = 0.01
"""Beside a change with more than a hundred times the squared norm, what it does to an error cannot be told."""


@dataclass(slots=True)
class SelfCorrection:
    """What the change of a round does to the error of the version before it.

    The nodes of a convex problem, such as a regression, soon undo an error, because the loss grows with it.  A neural network
    has many directions in which an error hardly changes the loss, and keeps most of it.

    Attributes:
        error: The sketch of the error of the newest version; empty if there is none.
        rounds: The number of rounds.
        undone: The sum over the rounds of minus the scalar product of a round's change and the error before it, over the
            squared norm of the change.
        undone_squares: The sum of the squares of these numbers.
        errors: The sum of the squared norms of the errors over those of the changes.
    """

    error: list[float] = field(default_factory=list[float])
    rounds: int = 0
    undone: float = 0.0
    undone_squares: float = 0.0
    errors: float = 0.0

    def add(self, change: Sketch, error: Sketch | None) -> None:
        """Count a round with this `change`, which led to a version with this `error`; None if the version leaves something out.

        What a version leaves out is no error: later versions bring it.
        """
        before, self.error = np.array(self.error), [] if error is None else error.tolist()
        norm, error_norm = float(change @ change), float(before @ before)
        if error_norm <= LEAST_ERROR * norm or not norm:
            return
        undone = -float(change @ before) / norm
        self.rounds += 1
        self.undone += undone
        self.undone_squares += undone * undone
        self.errors += error_norm / norm

    @property
    def share(self) -> float:
        """The share of an error that one round undoes; 0 if it may be chance."""
        known = self.rounds >= FEWEST and is_surely_positive(self.rounds, self.undone, self.undone_squares)
        return self.undone / self.errors if known else 0.0

    @property
    def is_absent(self) -> bool:
        """Whether enough rounds are known, and they show no correction."""
        return self.rounds >= FEWEST and not self.share

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_sketch(self.error)
        check_int("rounds", self.rounds, 0, 2**63 - 1)
        check_range("undone", self.undone)
        check_range("undone_squares", self.undone_squares, least=0)
        check_range("errors", self.errors, least=0)
        if bool(self.errors) != bool(self.rounds):
            raise ValueError(f"errors is {self.errors} after {self.rounds} rounds")
