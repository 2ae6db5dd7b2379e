"""The list of all plug-ins: `python -m fedcomp training` prints it."""

import inspect
from collections.abc import Iterator

from fedcomp.training.registry import PLUGINS


def text_lines() -> Iterator[str]:
    """Yield the list as plain text: for each plug-in, name and summary, settings with defaults, paper and measurement."""
    for name, about in sorted(PLUGINS.items()):
        parameters = inspect.signature(about.make).parameters.values()
        settings = ", ".join(f"{item.name}={item.default!r}" for item in parameters)
        yield f"{name:<24}{about.summary}"
        yield f"    {settings or 'no settings'}"
        yield f"    {about.paper}"
        yield f"    measured: {about.measured or 'nothing'}"
    yield ""
    yield "docs/training.md says what each one costs and brings; join several with +, as in training='fedprox(0.1) + ...'."
