"""The registry of methods: `register` adds one, `METHODS` is the live view of all, plug-ins included."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias

from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, Registry, check_bool
from fedcomp.entropy import EntropyCode
from fedcomp.memory import LinearFeedback, Memory, NoMemory
from fedcomp.quantize import MANY, Bounded, Quantizer, squared_error

P = ParamSpec("P")
Parts: TypeAlias = tuple[Quantizer[CompensatedUpdate, Any], EntropyCode[Any], Memory]
"""What a method returns: quantizer, entropy code and memory."""


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A method's paper, and the directions that it works in."""

    paper: str
    uplink: bool
    downlink: bool


METHODS: Registry[Compressor, MethodInfo] = Registry("method", "fedcomp.methods", Compressor)
"""Every method that `parse` knows: name -> constructor.  Packages add to it by the entry point group `fedcomp.methods`."""


def register(
    paper: str, *, uplink: bool = True, downlink: bool = True
) -> Callable[[Callable[P, Parts]], Callable[P, Compressor]]:
    """Return a decorator that makes a method of a function; the function's name becomes the method's name.

    The function returns quantizer, entropy code and memory.  Its arguments are the method's settings; the first one and
    those that differ from their defaults appear in the compressor's text.

    Args:
        paper: The source of the method, as ``"Author et al., 2026"``.
        uplink: Whether nodes may use it for their updates.
        downlink: Whether the server may use it for new versions of the model.

    Raises:
        ValueError: The name is taken, a setting has no default, or `paper` is missing.

    Examples:
        >>> import fedcomp
        >>> from fedcomp.entropy import SparseValues
        >>> from fedcomp.memory import LinearFeedback
        >>> from fedcomp.quantize import TopK
        >>> @fedcomp.register("Author et al., 2026")
        ... def example(density: float = 0.01) -> fedcomp.Parts:
        ...     return TopK(density), SparseValues(), LinearFeedback()
        >>> fedcomp.parse("example(density=0.5)") == example(density=0.5)
        True

    """
    if callable(paper):
        raise ValueError(f"the paper is {paper!r}; a text is needed, as in @register('Author et al., 2026')")
    return METHODS.register(MethodInfo(paper, uplink, downlink), _compressor)


def _compressor(name: str, settings: tuple[tuple[str, object], ...], parts: Parts) -> Compressor:
    texts = ((key, str(value) if isinstance(value, Compressor) else value) for key, value in settings)
    compressor = Compressor(name, tuple(texts), *parts)
    _check_feedback(compressor)
    return compressor


def _check_feedback(compressor: Compressor) -> None:
    """Refuse error feedback around a quantizer that declares an error as long as its vector: what is left would grow."""
    if not isinstance(compressor.quantizer, Bounded) or "residual" not in compressor.memory.vectors:
        return
    error = squared_error(compressor.error_bound(MANY))
    if error >= 1 and isinstance(compressor.memory, LinearFeedback):
        bound = "has no bound" if math.isinf(error) else f"may have {error:.3g} times the square of the vector"
        raise ValueError(
            f"{compressor} has error feedback, and the error of its message {bound}: what is left would grow without end; "
            "a compressor whose error is below the vector is needed, or one without feedback"
        )


def memory(feedback: bool) -> Memory:
    """Return error feedback, or no memory."""
    check_bool("feedback", feedback)
    return LinearFeedback() if feedback else NoMemory()
