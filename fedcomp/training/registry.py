"""The plug-ins by name, the plans that texts name, and the list of all plug-ins."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ParamSpec

from fedcomp.core import Registry, build, split_sum
from fedcomp.training.plan import Begin, Plan, PlugIn

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class PlugInInfo:
    """The paper of a plug-in, what it does in a few words, and what was measured of it, if anything."""

    paper: str
    summary: str
    measured: str = ""


PLUGINS: Registry[Plan, PlugInInfo] = Registry("training plug-in", "fedcomp.training", Plan)
"""Every plug-in that `parse` knows: name -> constructor.  Packages add to it by the entry point group `fedcomp.training`."""


def register(
    paper: str, summary: str, *, measured: str = "", rank: int = 0, inference: bool = False, saving: bool = False
) -> Callable[[Callable[P, Begin]], Callable[P, Plan]]:
    """Return a decorator that makes a plug-in of a function; the function's name becomes that of the plug-in.

    The function returns what `PlugIn.begin` is, and raises `ValueError` for settings out of range.  Its arguments are the
    settings; the first one and those that differ from their defaults appear in the text.

    Args:
        paper: The source, as ``"Author et al., 2026"``.
        summary: What the plug-in does, in a few words.
        measured: What it brought in a measurement, in a line.
        rank: When it acts among other plug-ins, as `PlugIn` says.
        inference: Whether it also decides how the trained model is used, as `PlugIn` says.
        saving: Whether it decides what autograd saves for the backward pass.

    Raises:
        ValueError: The name is taken, or a setting has no default.

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

    def plan(name: str, settings: tuple[tuple[str, object], ...], begin: Begin) -> Plan:
        return Plan((PlugIn(name, settings, begin, rank, inference, saving),))

    return PLUGINS.register(PlugInInfo(paper, summary, measured), plan)


def parse(text: str) -> Plan:
    """Return the plan that `text` names: plug-ins such as ``fedprox(mu=0.1)``, joined by `+`; none for an empty text.

    Nothing in the text is evaluated.  Raises `ValueError` for another form, an unknown plug-in and a setting out of range.
    """
    parts = split_sum(text) if text.strip() else ()
    return sum((build(part, PLUGINS, "training plug-in") for part in parts), Plan())


def text_lines() -> Iterator[str]:
    """Yield the list as plain text: of each plug-in its name and summary, settings with defaults, paper, and measurement."""
    for name in sorted(PLUGINS):
        about = PLUGINS.about(name)
        yield f"{name:<24}{about.summary}"
        yield f"    {PLUGINS.settings(name) or 'no settings'}"
        yield f"    {about.paper}"
        yield f"    measured: {about.measured or 'nothing'}"
    yield ""
    yield "docs/how-to/training/ says what each one costs and brings; join several with +, as in training='fedprox(0.1) + ...'."
