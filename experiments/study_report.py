"""The report of a study: one self-contained HTML page, for readers who have never seen the project.

    fedcomp report RESULTS.csv [--out PAGE] [--title TEXT] [--target 0.85 ...] [--figures DIR]

It needs only the table of results, so it can be made again at any time.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.figure_file import FORMATS, write
from experiments.axes import column_axis
from experiments.command import new_parser
from experiments.environment import environment, read_environment
from experiments.figures import pictures
from experiments.inline_svg import inline_svg
from experiments.network import ROUND_TRIPS
from experiments.results import read_csv, write_text
from experiments.study import GIVEN, TARGET_SHARES, Study, read_study
from experiments.summary import sentences, summary_table, warnings
from experiments.table import Table
from experiments.tables import (
    accuracy_tables,
    byte_tables,
    catch_up_tables,
    methods_table,
    network_table,
    ratio_tables,
    target_table,
    time_table,
)
from fedcomp.commands import path_of
from fedcomp.core import parse_call
from fedcomp.methods import METHODS

PAGE = "report.html.jinja"
MAX_OPEN_ROWS = 30
"""A table with more rows than this is folded."""


@dataclass(frozen=True, slots=True)
class About:
    """The texts of a report besides the results, and the settings of `read_study`."""

    title: str
    question: str = ""
    targets: tuple[float, ...] = ()
    """Target accuracies, 0 to 1. If empty, they follow from the results."""
    commands: tuple[str, ...] = ()
    """The commands that reproduce the study."""
    notes: tuple[str, ...] = ()
    cells_done: int | None = None
    cells_all: int | None = None
    results: str = ""
    """The address of the table of results, relative to the page."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """In which the last cells were run; empty if that was not recorded."""
    made: str = ""
    """When and with which version the report was made."""
    slowdown: float = 1.0
    """How many times slower than the machine of the study a node computes; for times over a network."""


def render(table: pd.DataFrame, about: About, figures: Path | None = None, formats: Sequence[str] = ("png",)) -> str:
    """Return the page as HTML, and write each figure in these formats into the folder `figures`, if given.

    Raises `ValueError` as `read_study` does.
    """
    study = read_study(table, about.targets, about.slowdown)
    loader = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return page.get_template(PAGE).render(
        about=about,
        study=study,
        sentences=sentences(study),
        warnings=warnings(study, about.cells_done, about.cells_all),
        summary=summary_table(study),
        setup=list(_setup(study)),
        methods=methods_table(study),
        papers=_papers(study),
        figures=list(_figures(study, figures, formats)),
        accuracies=[*accuracy_tables(study, "final"), *accuracy_tables(study, "best")],
        reaching=[*byte_tables(study), target_table(study)],
        sent=[*ratio_tables(study), *catch_up_tables(study)],
        times=time_table(study),
        networks=network_table(),
        shares=" and ".join(f"{share:.0%}" for share in TARGET_SHARES),
        round_trips=ROUND_TRIPS,
        max_open_rows=MAX_OPEN_ROWS,
    )


def named_tables(table: pd.DataFrame, targets: Sequence[float] = ()) -> dict[str, Table]:
    """Return final accuracy by method and setting, bytes to target, and the bytes of complete runs, each with its name."""
    study = read_study(table, targets)
    kinds = {
        "accuracy": accuracy_tables(study, "final"),
        "bytes-to-target": byte_tables(study),
        "targets": [target_table(study)],
        "ratios": ratio_tables(study),
        "catch-up": catch_up_tables(study),
    }
    return {
        kind if len(tables) == 1 else f"{kind}-{number}": one
        for kind, tables in kinds.items()
        for number, one in enumerate(tables, start=1)
    }


def made_now() -> str:
    """Return the date and the version of fedcomp, for `About.made`."""
    now = environment()
    return f"made {now['date']} with fedcomp {now['fedcomp']}" + (
        f", commit {now['commit']}" if "commit" in now else ""
    )


def _figures(study: Study, folder: Path | None, formats: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the name, the caption, the number of panels and the SVG element of each figure."""
    for picture in pictures(study):
        for kind in formats if folder is not None else ():
            write(picture.figure, Path(folder or "", f"{picture.name}.{kind}"))
        svg = inline_svg(picture.figure, picture.name)
        yield {"name": picture.name, "caption": picture.caption, "panels": len(picture.figure.axes), "svg": svg}


def _setup(study: Study) -> Iterator[tuple[str, str]]:
    """Yield each setting that all methods share, with its value or values."""
    for column in (*GIVEN, "seed"):
        axis = column_axis(column, list(study.runs[column].unique().tolist()))
        yield ("seeds" if column == "seed" else axis.name), "; ".join(axis.format(value) for value in axis.values)
    least, most = study.runs["iterations"].min(), study.runs["iterations"].max()
    ends = str(least) if least == most else f"{least} to {most}"
    yield "length of a run", f"{ends} iterations (steps of a node that takes part in every round)"


def _papers(study: Study) -> dict[str, str]:
    """Return the paper of each compressor of the study that fedcomp knows."""
    texts = pd.concat([study.runs["uplink"], study.runs["downlink"]]).unique()
    names = {text: parse_call(text, METHODS)[0] for text in sorted(texts)}
    return {text: METHODS.about(name).paper for text, name in names.items() if name in METHODS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the report of a table of results; return 0."""
    parser = new_parser("fedcomp report", __doc__)
    parser.add_argument("results", type=path_of, help="the CSV file of a study")
    parser.add_argument(
        "--out", type=path_of, help="the page; by default next to the results, with .html instead of .csv"
    )
    parser.add_argument("--title", help="by default the name of the results file")
    parser.add_argument("--question", default="", help="the question of the study, a paragraph")
    parser.add_argument("--target", type=float, nargs="+", default=[], help="target accuracies, 0 to 1")
    parser.add_argument("--slowdown", type=float, default=1.0, help="of a node, relative to the machine of the study")
    parser.add_argument("--figures", type=path_of, help="a folder for the figures as files")
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=["png"], help="of these files (png)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown as well")
    parser.add_argument(
        "--latex", type=path_of, metavar="DIR", help="a folder for the tables as .tex files, for booktabs"
    )
    options = parser.parse_args(arguments)
    out = options.out or options.results.with_suffix(".html")
    if out.resolve() == options.results.resolve():
        parser.error(f"{out} would be both the table and the page; another --out is needed")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        about = About(
            title=options.title or options.results.stem,
            question=options.question,
            targets=tuple(options.target),
            commands=(shlex.join(["fedcomp", "report", *given]),),
            results=Path(os.path.relpath(options.results, out.parent)).as_posix(),
            environment=read_environment(options.results.parent),
            made=made_now(),
            slowdown=options.slowdown,
        )
        table = read_csv(options.results)
        write_text(out, render(table, about, options.figures, options.format))
        if options.latex:
            options.latex.mkdir(parents=True, exist_ok=True)
            for name, one in named_tables(table, options.target).items():
                write_text(options.latex / f"{name}.tex", one.to_latex())
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    print(f"report: {out}", file=sys.stderr)
    if options.markdown:
        print("\n".join(one.to_markdown() for one in named_tables(table, options.target).values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
