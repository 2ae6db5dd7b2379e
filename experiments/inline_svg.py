"""Turns a figure into an SVG that is part of an HTML page: it takes the page's colours, so that it fits light and dark."""

import re

from matplotlib.figure import Figure

from benchmarks.figure_file import to_bytes

PAGE_COLORS = {"#000000": "currentColor", "#ffffff": "var(--page)"}
"""Colour in a figure -> colour of the page: of its text and of its background."""


def inline_svg(figure: Figure, name: str) -> str:
    """Return the figure as an ``<svg>`` element without ids of its own except those that it refers to; `name` is unique.

    Text and lines in black take the colour of the page's text, and white takes the page's ``--page``.
    """
    text = to_bytes(figure, "svg", salt=name).decode()
    svg = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    for color, of_page in PAGE_COLORS.items():
        svg = svg.replace(color, of_page)
    return svg.replace("<svg ", '<svg fill="currentColor" ', 1)
