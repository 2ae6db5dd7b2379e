"""The report of a study: one self-contained HTML page, for readers who have never seen the project.

    python -m experiments.study_report RESULTS.csv [--out PAGE] [--title TEXT] [--target 0.85 ...] [--figures DIR]

It needs only the table of results, so it can be made again at any time.
"""

import argparse
import base64
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.axes import column_axis
from experiments.figures import pictures
from experiments.network import ROUND_TRIPS
from experiments.results import read_csv, write_text
from experiments.study import GIVEN, TARGET_SHARES, Study, read_study
from experiments.summary import sentences, summary_table, warnings
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
from fedcomp.core import parse_call
from fedcomp.methods import ABOUT

PAGE = "report.html.jinja"
LONG = 30
"""A table with more rows than these is folded."""


@dataclass(frozen=True, slots=True)
class About:
    """What a report says beside the results: title, question, target accuracies (0 to 1), commands, notes, progress.

    Raises `ValueError` for a target outside (0, 1], and for a slowdown of nodes that is not above 0.
    """

    title: str
    question: str = ""
    targets: tuple[float, ...] = ()
    """Empty: they follow from the results, see `outcome.targets`."""
    commands: tuple[str, ...] = ()
    """Lines of text that reproduce the study."""
    notes: tuple[str, ...] = ()
    cells_done: int | None = None
    cells_all: int | None = None
    slowdown: float = 1.0
    """How many times slower than the machine of the study a node computes; for times over a network."""

    def __post_init__(self) -> None:
        """Check targets and slowdown."""
        for target in self.targets:
            if not 0 < target <= 1:
                raise ValueError(f"target accuracy {target:g}; a number above 0 and at most 1 is needed")
        if not self.slowdown > 0:
            raise ValueError(f"slowdown is {self.slowdown:g}; a number above 0 is needed")


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure as the page holds it: PNG as a data URI."""

    name: str
    uri: str
    caption: str


def write(path: Path, frame: pd.DataFrame, about: About, figures: Path | None = None) -> None:
    """Write the page, in one step; and each figure as a PNG file into the folder `figures`, if there is one.

    Raises `ValueError` for a frame without a row.
    """
    text = render(frame, about, figures)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def render(frame: pd.DataFrame, about: About, figures: Path | None = None) -> str:
    """Return the page as HTML; raises, and writes the figures, as `write` does."""
    study = read(frame)
    loader = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return page.get_template(PAGE).render(
        about=about,
        study=study,
        sentences=sentences(study, about.targets),
        warnings=warnings(study, about.cells_done, about.cells_all),
        summary=_own(study, summary_table(study, about.targets, about.slowdown)),
        setup=list(_setup(study)),
        methods=methods_table(study),
        words=_glossary(study),
        pictures=list(_pictures(study, about, figures)),
        accuracies=[*accuracy_tables(study, "final"), *accuracy_tables(study, "best")],
        reaching=[*byte_tables(study, about.targets), target_table(study, about.targets)],
        sent=[*ratio_tables(study), *catch_up_tables(study)],
        times=time_table(study, about.targets, about.slowdown),
        networks=network_table(),
        shares=" and ".join(f"{share:.0%}" for share in SHARES),
        round_trips=ROUND_TRIPS,
        long=LONG,
    )


def markdown(frame: pd.DataFrame, asked: Sequence[float] = ()) -> str:
    """Return final accuracy by method and setting, bytes to target, and what whole runs sent, as Markdown.

    `asked` are the target accuracies, 0 to 1; with none they follow from the results, see `outcome.targets`.
    """
    study = read(frame)
    tables = [
        *accuracy_tables(study, "final"),
        *byte_tables(study, asked),
        target_table(study, asked),
        *ratio_tables(study),
        *catch_up_tables(study),
    ]
    return "\n".join(table.to_markdown() for table in tables)


def _own(study: Study, table: Table) -> Table:
    """Return the summary, without its first column in a study of one setting."""
    return table if study.axes else replace(table, head=table.head[1:], rows=tuple(row[1:] for row in table.rows))


def _pictures(study: Study, about: About, folder: Path | None) -> Iterator[Shown]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for picture in gallery(study, about.targets, about.slowdown):
        file = io.BytesIO()
        picture.figure.savefig(file, format="png")
        if folder is not None:
            (folder / f"{picture.name}.png").write_bytes(file.getvalue())
        uri = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        yield Shown(picture.name, uri, picture.caption)


def _setup(study: Study) -> Iterator[tuple[str, str]]:
    """Yield what was run: each setting that all methods share, with its value or its values."""
    for column in (*GIVEN, "seed"):
        axis = column_axis(column, list(dict.fromkeys(curve.settings[column] for curve in study.curves)))
        yield ("seeds" if column == "seed" else axis.name), "; ".join(axis.format(value) for value in axis.values)
    lengths = sorted({int(curve["iterations"][-1]) for curve in study.curves})
    ends = str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    yield "length of a run", f"{ends} iterations (steps of a node that takes part in every round)"


def _glossary(study: Study) -> dict[str, str]:
    """Return partitions and compressors of the study, those of one kind together -> what they are, in words."""
    partitions = dict.fromkeys(str(curve.settings["partition"]) for curve in study.curves)
    compressors = dict.fromkeys(str(curve.settings[side]) for curve in study.curves for side in ("uplink", "downlink"))
    kinds: dict[str, list[str]] = {}
    for texts, words in ((partitions, partition_words), (compressors, compressor_words)):
        for text in texts:
            kinds.setdefault(words(text), []).append(text)
    return {", ".join(texts): said for said, texts in kinds.items() if said}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the report of a table of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the CSV file of a study")
    parser.add_argument("--out", type=Path, help="the page; by default beside the results, with .html in place of .csv")
    parser.add_argument("--title", help="by default the name of the results' file")
    parser.add_argument("--question", default="", help="what the study asks, a paragraph")
    parser.add_argument("--target", type=float, nargs="+", default=[], help="target accuracies, 0 to 1")
    parser.add_argument("--slowdown", type=float, default=1.0, help="of a node, beside the machine of the study")
    parser.add_argument("--figures", type=Path, help="a folder for the figures as PNG files")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown as well")
    options = parser.parse_args(arguments)
    out = options.out or options.results.with_suffix(".html")
    command = shlex.join(
        ["python", "-m", "experiments.study_report", *(sys.argv[1:] if arguments is None else arguments)]
    )
    try:
        about = About(
            title=options.title or options.results.stem,
            question=options.question,
            targets=tuple(options.target),
            commands=(command,),
            slowdown=options.slowdown,
        )
        frame = read_csv(options.results)
        write(out, frame, about, options.figures)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    print(f"report: {out}", file=sys.stderr)
    if options.markdown:
        print(markdown(frame, options.target))


if __name__ == "__main__":
    main()
