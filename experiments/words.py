"""A partition, a compressor and a number in words, for who has never seen the project."""

from experiments.axes import terms
from experiments.outcome import Spread
from fedcomp.core import parse_call
from fedcomp.data import SCHEMES
from fedcomp.data.skews import SKEWS
from fedcomp.methods import METHODS

PARTITIONS = {
    "stc": "Each client holds samples of so many classes, as in the STC paper; with gamma below 1 clients differ in size.",
    "classes": "Each client holds samples of exactly so many classes.",
    "dirichlet": "Each class is shared out over the clients by a Dirichlet distribution; the smaller alpha, the more unevenly.",
}
"""Schemes whose docstring speaks to who reads the code."""


def partition_words(text: str) -> str:
    """Return a partition in words, each of its terms; empty for one that is not known."""
    try:
        names = [parse_call(term)[0] for term in terms(text)]
    except ValueError:
        return ""
    return " ".join(
        filter(None, (PARTITIONS.get(name) or _said(SCHEMES.get(name) or SKEWS.get(name)) for name in names))
    )


def compressor_words(text: str) -> str:
    """Return what a compressor sends, in words; empty for one that is not known."""
    try:
        said = _said(METHODS.get(parse_call(text)[0])).removeprefix("Return ")
    except ValueError:
        return ""
    return said[:1].upper() + said[1:]


def percent(value: Spread, digits: int = 1) -> str:
    """Return an accuracy as "85.8 ± 0.2", in percent: mean and standard deviation over seeds; "-" where there is none.

    Where not all seeds have one, it says how many have.
    """
    if value.count == 0:
        return "-"
    said = f"{100 * value.mean:.{digits}f}" + (f" ± {100 * value.std:.{digits}f}" if value.count > 1 else "")
    return said if value.count == value.of else f"{said} ({seeds(value)})"


def seeds(value: Spread) -> str:
    """Return "2 of 3 seeds"."""
    return f"{value.count} of {value.of} seed{'s' if value.of > 1 else ''}"


def megabytes(size: float) -> str:
    """Return a size in MB (10^6 bytes) with three digits, as 0.524 or 1,570."""
    value = size / 1e6
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}".rstrip(".")


def _said(maker: object) -> str:
    """Return the first paragraph of a docstring, without its marks for code."""
    return " ".join((getattr(maker, "__doc__", None) or "").strip().split("\n\n")[0].replace("`", "").split())
