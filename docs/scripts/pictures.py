"""Draws the pictures of the README and the documentation, as SVG files in docs/assets.

    python -m docs.scripts.pictures demo                     # what `python -m fedcomp demo` prints; half a minute
    python -m docs.scripts.pictures monitor runs/digits-001  # what `fedcomp monitor` shows of this run
    python -m docs.scripts.pictures default                  # the README's chart, from docs/results/default-*/results.csv
    python -m docs.scripts.pictures badges                   # of the README, from pyproject.toml

Rich draws the terminals.  The chart is written as text: such an SVG file follows the reader's light or dark screen.
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path

import pandas as pd
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from deploy.monitor.snapshot import read_run
from deploy.monitor.tui import render
from fedcomp.core import format_bytes

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
RESULTS = ROOT / "docs" / "results"
WIDTH = 82
"""Characters of a terminal."""
THEME = TerminalTheme(
    (29, 36, 41),
    (222, 228, 230),
    [(29, 36, 41), (239, 110, 110), (128, 203, 120), (235, 200, 110), (110, 170, 240), (200, 140, 230), (77, 208, 190)]
    + [(222, 228, 230)],
)
TASKS = {
    "digits": "Digits, MLP",
    "mnist-logistic": "MNIST, logistic regression",
    "fashion-cnn": "Fashion-MNIST, CNN",
}
"""The studies of the chart, and what the chart calls them."""
PLAIN, DEFAULT = "plain Flower", "fedcomp, default"


def terminal(title: str, *lines: RenderableType, width: int = WIDTH) -> str:
    """Return the SVG picture of a terminal with these lines."""
    console = Console(record=True, width=width, file=StringIO(), highlight=False, force_terminal=True)
    for line in lines:
        console.print(line)
    svg = console.export_svg(title=title, theme=THEME, unique_id=re.sub(r"\W+", "-", title))
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # it would load a font from a host of others
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace")


def demo() -> str:
    """Return the picture of the demo, with the bytes of its default in bold."""
    command = [sys.executable, "-m", "fedcomp", "demo"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [Text("$ python -m fedcomp demo", style="bold cyan")]
    lines += [Text(line, style="bold green" if line.startswith("auto()") else "") for line in printed.splitlines()]
    return terminal("python -m fedcomp demo", *lines, "")  # the last line is cut in some browsers


def monitor(folder: Path) -> str:
    """Return the picture of the monitor, once the run of a folder is over."""
    command = Text(f"$ fedcomp monitor runs/{folder.name}", style="bold cyan")
    return terminal("the monitor of a run", command, render(read_run(folder)), "", width=100)


@dataclass(frozen=True, slots=True)
class Bars:
    """What the chart shows of one task: means over the seeds."""

    title: str
    plain_bytes: float
    sent_bytes: float
    plain_accuracy: float
    accuracy: float


def bars(name: str, title: str) -> Bars:
    """Return the bars of a task from its published results."""
    rows = pd.read_csv(RESULTS / f"default-{name}" / "results.csv")
    last = rows[rows["round"] == rows["round"].max()].groupby("method").mean(numeric_only=True)
    sent = last["uplink_bytes"] + last["downlink_bytes"]
    accuracy = last["accuracy"]
    return Bars(title, sent[PLAIN], sent[DEFAULT], accuracy[PLAIN], accuracy[DEFAULT])


def chart() -> str:
    """Return the chart: for each task a bar of plain Flower's bytes and one of the default's, with the accuracies."""
    left, width, step = 16, 448, 92
    parts = list[str]()
    for index, each in enumerate(bars(name, title) for name, title in TASKS.items()):
        top = 52 + index * step
        short = max(each.sent_bytes / each.plain_bytes * width, 1.5)
        plain = f"{format_bytes(round(each.plain_bytes))}, {each.plain_accuracy:.1%} accuracy"
        sent = f"fedcomp: {format_bytes(round(each.sent_bytes))}, {each.accuracy:.1%} accuracy"
        ratio = f"{each.plain_bytes / each.sent_bytes:.0f} times fewer bytes"
        parts += [
            f'<text class="title" x="{left}" y="{top}">{escape(each.title)}</text>',
            f'<rect class="plain" x="{left}" y="{top + 10}" width="{width}" height="22" rx="3"/>',
            f'<text class="inside" x="{left + 8}" y="{top + 26}">plain Flower</text>',
            f'<text x="{left + width + 10}" y="{top + 26}">{plain}</text>',
            f'<rect class="sent" x="{left}" y="{top + 36}" width="{short:.1f}" height="22" rx="1.5"/>',
            f'<text x="{left + short + 8:.1f}" y="{top + 52}">{sent}<tspan class="ratio" dx="12">{ratio}</tspan></text>',
        ]
    height = 36 + len(TASKS) * step
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" role="img" aria-label="Bytes sent in a whole \
run, plain Flower and fedcomp's default">
<style>
  text {{ font: 14px system-ui, sans-serif; fill: #1d2429 }}
  .head {{ font-size: 15px; font-weight: 600 }} .title {{ font-weight: 600 }} .inside {{ fill: #fff }}
  .ratio {{ font-weight: 700; fill: #00695c }} .plain {{ fill: #78868f }} .sent {{ fill: #00897b }}
  .page {{ fill: #fff }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #dee4e6 }} .ratio {{ fill: #4dd0be }} .plain {{ fill: #5b6870 }} .page {{ fill: #1d2429 }}
  }}
</style>
<rect class="page" width="680" height="{height}" rx="8"/>
<text class="head" x="{left}" y="24">Bytes sent in a whole run, up and down, each task to its own scale</text>
{chr(10).join(parts)}
</svg>
"""


def badges() -> dict[str, str]:
    """Return the pictures of the README's badges by name: what pyproject.toml says."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pythons = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    [(lowest, beyond)] = re.findall(r"flwr>=1\.(\d+),<1\.(\d+); extra", text)
    return {
        "badge-python": badge("Python", " | ".join(pythons)),
        "badge-flower": badge("Flower", f"1.{lowest} - 1.{int(beyond) - 1}"),
        "badge-licence": badge("licence", "Apache-2.0"),
        "badge-cite": badge("cite", "CITATION.cff"),
    }


def badge(left: str, right: str) -> str:
    """Return the picture of a badge with two words."""
    border, width = 8 + 6.6 * len(left), 18 + 6.6 * len(left + right)
    style = 'fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="20" role="img" aria-label="{left}: {right}">
<rect width="{width:.0f}" height="20" rx="3" fill="#555"/>
<rect x="{border:.0f}" width="{width - border:.0f}" height="20" rx="3" fill="#00796b"/>
<text x="{border / 2:.0f}" y="14" {style}>{left}</text>
<text x="{(border + width) / 2:.0f}" y="14" {style}>{right}</text>
</svg>
"""


def main() -> None:
    """Write one picture, or the badges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=["demo", "monitor", "default", "badges"])
    parser.add_argument("folder", nargs="?", type=Path, help="of the run, for the monitor")
    options = parser.parse_args()
    if options.picture == "badges":
        pictures = badges()
    elif options.picture == "monitor":
        if options.folder is None:
            parser.error("the monitor needs the folder of a run")
        pictures = {"monitor": monitor(options.folder)}
    else:
        pictures = {options.picture: demo() if options.picture == "demo" else chart()}
    for name, svg in pictures.items():
        (ASSETS / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
