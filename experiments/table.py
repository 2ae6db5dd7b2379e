"""A table of texts, for a terminal, as Markdown, as LaTeX, and for an HTML page."""

import io
import re
from collections.abc import Collection
from dataclasses import dataclass

import rich.box
import rich.markup
import rich.table
from rich.console import Console

MAX_WIDTH = 160
NUMBER = re.compile(r"[+-]?\d")
LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    | {letter: f"\\{letter}" for letter in "&%$#_{}"}
)
"""What LaTeX reads as something else -> how it is written."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts, with a caption that says what its numbers are; `best` are the (row, column) of the best cells."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: Collection[tuple[int, int]] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers, which are aligned to the right; the first column names the rows."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.head)
        found = [
            any(NUMBER.match(cell) for cell in column)
            and all(NUMBER.match(cell) or cell in ("", "-", "never") for cell in column)
            for column in columns
        ]
        return (False, *found[1:])

    def to_text(self) -> str:
        """Return the table for a terminal: the caption, then lines of at most `MAX_WIDTH` columns."""
        grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for name, numeric in zip(self.head, self.numeric, strict=True):
            grid.add_column(rich.markup.escape(name), justify="right" if numeric else "left", overflow="fold")
        for row in self.rows:
            grid.add_row(*map(rich.markup.escape, row))
        console = Console(file=io.StringIO(), width=MAX_WIDTH, color_system=None)
        with console.capture() as capture:
            console.print(grid)
        lines = (line.rstrip() for line in capture.get().splitlines())
        return "\n".join([self.caption, *lines]).rstrip() + "\n"

    def to_markdown(self) -> str:
        """Return the table as Markdown: the caption, a line for the head and for each row, the best cells in bold."""
        rows = [
            [f"**{cell}**" if (y, x) in self.best else cell for x, cell in enumerate(row)]
            for y, row in enumerate(self.rows)
        ]
        lines = [self.head, ["---:" if numeric else "---" for numeric in self.numeric], *rows]
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.caption}\n\n{text}\n"

    def to_latex(self) -> str:
        r"""Return a ``tabular`` with the rules of booktabs, for ``\input``; the caption is a comment above it."""
        rows = [
            [rf"\textbf{{{cell}}}" if (y, x) in self.best else cell for x, cell in enumerate(map(_escape, row))]
            for y, row in enumerate(self.rows)
        ]
        head, *body = (" & ".join(cells) + r" \\" for cells in [map(_escape, self.head), *rows])
        columns = "".join("r" if numeric else "l" for numeric in self.numeric)
        begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
        lines = [f"% {self.caption}", begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end]
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.translate(LATEX)
