"""Writes matplotlib figures as PNG, SVG or PDF; the same figure gives the same bytes."""

import io
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
PNG_DPI = 150
NO_DATES = {
    "png": {},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None},
}


def format_of(path: Path) -> str:
    """Return which of `FORMATS` the suffix of a path names; raise `ValueError` for another suffix."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"{str(path)!r} is no name of a figure; a name that ends in .png, .svg or .pdf is needed")
    return kind


def literal_text() -> AbstractContextManager[None]:
    """Return a context in which to draw and write figures whose texts are not our own: a $ in them does not begin TeX.

    The numbers of a logarithmic axis are TeX by default, so such an axis needs a formatter of its own.
    """
    return mpl.rc_context({"text.parse_math": False})


def to_bytes(figure: Figure, kind: str, salt: str = "fedcomp") -> bytes:
    """Return the figure as one of `FORMATS`; `salt` makes the ids of an SVG differ from those of others in one page."""
    file = io.BytesIO()
    settings = mpl.rc_context(
        {
            "svg.fonttype": "none",  # text stays text: it can be searched, and takes the colour of the page
            "svg.hashsalt": salt,
            "pdf.fonttype": 42,  # TrueType, which publishers accept
        }
    )
    with settings:
        figure.savefig(file, format=kind, metadata=NO_DATES[kind], dpi=PNG_DPI, transparent=kind == "svg")
    return file.getvalue()


def write(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the path's suffix, and make its folder; raises as `format_of` does."""
    data = to_bytes(figure, format_of(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
