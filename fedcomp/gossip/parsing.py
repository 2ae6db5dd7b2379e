"""Ways to exchange models by their text, as ``choco(topk(density=0.01, feedback=False), step_size=0.1)``."""

from collections.abc import Callable, Mapping

from fedcomp.core import build
from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.methods import METHODS as COMPRESSORS
from fedcomp.methods import parse

Named = tuple[Choco | DeepSqueeze, bool]
"""A method, and whether its text names the step size."""


def choco(compressor: str, step_size: float | None = None) -> Named:
    """Return `Choco` with the compressor of this text, and with a step size of 1 if none is named."""
    return Choco(parse(compressor), 1.0 if step_size is None else step_size), step_size is not None


def deep_squeeze(compressor: str, step_size: float | None = None) -> Named:
    """Return `DeepSqueeze` with the compressor of this text, and with a step size of 1 if none is named."""
    return DeepSqueeze(parse(compressor), 1.0 if step_size is None else step_size), step_size is not None


METHODS: Mapping[str, Callable[..., Named]] = {"choco": choco, "deep_squeeze": deep_squeeze}
"""Name -> maker of each way to exchange models."""


def parse_method(text: str) -> Choco | DeepSqueeze:
    """Return the method that `text` names, as ``"choco(topk(density=0.01, feedback=False), step_size=0.1)"``.

    The step size is 1 if none is named.  Raises `ValueError` for another form, an unknown name, and settings that do not fit.
    """
    return _named(text)[0]


def names_step_size(text: str) -> bool:
    """Return whether the text of a method names its step size; raises as `parse_method` does."""
    return _named(text)[1]


def _named(text: str) -> Named:
    return build(text, METHODS, "gossip method", COMPRESSORS)
