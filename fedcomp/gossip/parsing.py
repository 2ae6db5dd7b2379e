"""Methods of exchange by their text, such as ``choco(topk(density=0.01, feedback=False), step_size=0.1)``."""

from collections.abc import Callable, Mapping

from fedcomp.core import build
from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.methods import METHODS as COMPRESSORS
from fedcomp.methods import parse


def choco(compressor: str, step_size: float | None = None) -> Choco:
    """Return `Choco` with the compressor of this text."""
    return Choco(parse(compressor), step_size)


def deep_squeeze(compressor: str, step_size: float | None = None) -> DeepSqueeze:
    """Return `DeepSqueeze` with the compressor of this text."""
    return DeepSqueeze(parse(compressor), step_size)


METHODS: Mapping[str, Callable[..., Choco | DeepSqueeze]] = {"choco": choco, "deep_squeeze": deep_squeeze}
"""Name -> maker of each method of exchange."""


def parse_method(text: str) -> Choco | DeepSqueeze:
    """Return the method that `text` describes, such as ``"choco(topk(density=0.01, feedback=False), step_size=0.1)"``.

    The step size is None if the text has none.  Raises `ValueError` for another form, an unknown name, and settings that do
    not fit.
    """
    return build(text, METHODS, "gossip method", COMPRESSORS)
