"""What the change of a round has in common with what is not published yet."""

import math
from dataclasses import dataclass

import numpy as np

from fedcomp.core import Vector
from fedcomp.memory import LinearFeedback
from fedcomp.sync import Publisher

RESIDUAL = LinearFeedback().name
ALIKE = 0.2
"""The cosine of a round's change and the unpublished change from which the latter is more than noise."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """Scalar products of a round's change, which is what the nodes ask for, with itself and with earlier changes.

    Attributes:
        norm: The squared norm of the change, above 0.
        unpublished: The scalar product with what was unpublished before the round.
        unpublished_norm: The squared norm of that.
        published: The scalar product with what was published since the origin of the grid; None if it was not computed.
    """

    norm: float
    unpublished: float
    unpublished_norm: float
    published: float | None = None

    @classmethod
    def of(cls, change: Vector, publisher: Publisher, *, published: bool) -> "AskedFor | None":
        """Return what `change`, float32 (n,), asks for; None without a residual, and if the change is 0 or no number.

        Each scalar product takes the time of some copies.  That with the published change is computed if `published` says so
        and there is an origin.
        """
        residual, origin = publisher.memory.get(RESIDUAL), publisher.replica.origin
        if residual is None or not 0 < (norm := _product(change, change)) < math.inf:
            return None
        known = origin.product(change) if published and origin is not None else None
        return cls(norm, _product(change, residual), _product(residual, residual), known)

    @property
    def times(self) -> float:
        """How many times the unpublished change holds what the round asks for; 0 if most of it is noise.

        The noise of many rounds, published at once, would undo what a model has learned.
        """
        is_alike = self.unpublished > ALIKE * math.sqrt(self.norm * self.unpublished_norm)
        return self.unpublished / self.norm if is_alike else 0.0


def _product(one: Vector, other: Vector) -> float:
    """Return the scalar product, added in float64."""
    return float(np.einsum("i,i", one, other, dtype=np.float64))
