"""The plug-ins by name, and the plans that texts describe."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ParamSpec

from fedcomp.core import build, settings_of, split_sum
from fedcomp.training.plan import Begin, Plan, PlugIn

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class About:
    """The constructor of a plug-in, its paper, a summary in a few words, and a measurement, if there is one."""

    make: Callable[..., Plan]
    paper: str
    summary: str
    measured: str = ""


PLUGINS: dict[str, About] = {}
"""Every plug-in that `parse` knows, by name; `register` adds to it."""


def register(
    paper: str, summary: str, *, measured: str = "", rank: int = 0, inference: bool = False, saving: bool = False
) -> Callable[[Callable[P, Begin]], Callable[P, Plan]]:
    """Return a decorator that makes a plug-in of a function; the function's name becomes the name of the plug-in.

    The function returns the plug-in's `begin` (see `PlugIn`), and raises `ValueError` for settings out of range.  Its arguments
    are the settings.  The text shows the first setting, and the settings that differ from their defaults.

    Args:
        paper: The source, as ``"Author et al., 2026"``.
        summary: What the plug-in does, in a few words.
        measured: The result of a measurement, in a line.
        rank: Its place in the order of plug-ins; see `PlugIn`.
        inference: Whether it also decides how the trained model is used; see `PlugIn`.
        saving: Whether it decides what autograd saves for the backward pass.

    Raises:
        ValueError: The name is taken.

    Examples:
        >>> from torch import nn
        >>> from fedcomp.training import Step, register
        >>> class Clipped(Step):
        ...     def __init__(self, model, bound):
        ...         self.model, self.bound = model, bound
        ...     def gradients(self):
        ...         nn.utils.clip_grad_norm_(self.model.parameters(), self.bound)
        ...         return True
        >>> @register("Author et al., 2026", "gradients of bounded norm")
        ... def clipped(bound: float = 1.0):
        ...     return lambda model, kept, generator: Clipped(model, bound)
        >>> print(parse("fedprox(0.1) + clipped(bound=0.5)"))
        fedprox(mu=0.1) + clipped(bound=0.5)

    """

    def enter(make: Callable[P, Begin]) -> Callable[P, Plan]:
        name, signature = make.__name__, inspect.signature(make)
        if name in PLUGINS:
            raise ValueError(f"plug-in {name!r} exists already ({PLUGINS[name].paper}); choose another name")

        @functools.wraps(make)
        def plan(*args: P.args, **kwargs: P.kwargs) -> Plan:
            settings = settings_of(signature, *args, **kwargs)
            return Plan((PlugIn(name, tuple(settings.items()), make(*args, **kwargs), rank, inference, saving),))

        plan.__signature__ = signature.replace(return_annotation=Plan)  # type: ignore[attr-defined]
        PLUGINS[name] = About(plan, paper, summary, measured)
        return plan

    return enter


def parse(text: str) -> Plan:
    """Return the plan that `text` describes: plug-ins such as ``fedprox(mu=0.1)``, joined by `+`; none for an empty text.

    Nothing in the text is evaluated.  Raises `ValueError` for another form, an unknown plug-in and a setting out of range.
    """
    makers: Mapping[str, Callable[..., Plan]] = {name: about.make for name, about in PLUGINS.items()}
    parts = split_sum(text) if text.strip() else ()
    return sum((build(part, makers, "training plug-in") for part in parts), Plan())
