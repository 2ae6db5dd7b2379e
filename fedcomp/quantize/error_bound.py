"""How far the result of a quantizer may be from its input: the property that gossip, AC-SGD and error feedback ask for."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

MANY = 1 << 31
"""The number of entries at which a bound is evaluated to decide whether a quantizer contracts."""

BELOW_ONE = math.nextafter(1, 0)


@dataclass(frozen=True, slots=True)
class Unbiased:
    """E C(v) = v, and E||C(v) - v||^2 <= `variance` ||v||^2, for every v; the mean is over seeds.

    Of quantizers that rotate (`Eden`, `NearestVertex`), E C(v) = v does not hold if a few entries have most of a chunk's norm.
    Nor does it hold near the end of float32, where results saturate: for a rotation, from scales of 2^117 on.
    """

    variance: float


@dataclass(frozen=True, slots=True)
class Contracting:
    """E||C(v) - v||^2 <= `factor` ||v||^2 for every v, with a factor below 1; the mean is over seeds."""

    factor: float


ErrorBound: TypeAlias = Unbiased | Contracting


@runtime_checkable
class Bounded(Protocol):
    """A quantizer that declares the bound of its error."""

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the bound for vectors of up to `n` entries; None if there is none.

        `fedcomp.testing.check_compressor` measures it.
        """
        ...


@runtime_checkable
class Contractible(Protocol):
    """A quantizer that has a contracting form: a setting with less error."""

    def contracting(self) -> Any:
        """Return the quantizer with that setting."""
        ...


def error_bound(quantizer: object, n: int) -> ErrorBound | None:
    """Return the bound that `quantizer` declares for vectors of up to `n` entries; None if it declares none."""
    return quantizer.error_bound(n) if isinstance(quantizer, Bounded) else None


def squared_error(bound: ErrorBound | None) -> float:
    """Return c with E||C(v) - v||^2 <= c ||v||^2; infinity without a bound."""
    if bound is None:
        return float("inf")
    return bound.variance if isinstance(bound, Unbiased) else bound.factor


def joint(first: ErrorBound | None, second: float) -> ErrorBound | None:
    """Return the joint bound: `first` selects entries, and their values then have an error of `second` times their square."""
    if not isinstance(first, Contracting) or not second < 1:
        return None
    return Contracting(min(first.factor + (1 - first.factor) * second, BELOW_ONE))
