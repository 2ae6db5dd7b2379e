"""How a function that composes a method becomes an entry of `METHODS`."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias

from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, check_bool
from fedcomp.entropy import EntropyCode
from fedcomp.memory import ErrorFeedback, Memory, NoMemory
from fedcomp.quantize import Quantizer

P = ParamSpec("P")
Parts: TypeAlias = tuple[Quantizer[CompensatedUpdate, Any], EntropyCode[Any], Memory]
"""Quantizer, entropy code and memory."""


@dataclass(frozen=True, slots=True)
class About:
    """A method's constructor, where it comes from, and which way it works."""

    make: Callable[..., Compressor]
    paper: str
    uplink: bool
    downlink: bool


ABOUT: dict[str, About] = {}


def method(
    paper: str, *, uplink: bool = True, downlink: bool = True
) -> Callable[[Callable[P, Parts]], Callable[P, Compressor]]:
    """Enter the function below under its name.

    Its arguments are the settings: the first one and those that differ from their defaults make the compressor's text.
    """

    def enter(compose: Callable[P, Parts]) -> Callable[P, Compressor]:
        name = compose.__name__
        signature = inspect.signature(compose)
        first = next(iter(signature.parameters), None)

        @functools.wraps(compose)
        def make(*args: P.args, **kwargs: P.kwargs) -> Compressor:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            parts = compose(*given.args, **given.kwargs)
            settings = tuple(
                (key, value)
                for key, value in given.arguments.items()
                if key == first or value != signature.parameters[key].default
            )
            return Compressor(name, settings, *parts)

        make.__signature__ = signature.replace(return_annotation=Compressor)  # type: ignore[attr-defined]
        ABOUT[name] = About(make, paper, uplink, downlink)
        return make

    return enter


def memory(feedback: bool) -> Memory:
    """Return error feedback, or nothing."""
    check_bool("feedback", feedback)
    return ErrorFeedback() if feedback else NoMemory()
