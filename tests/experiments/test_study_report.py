"""The report is one self-contained page, which escapes all texts and states the limits of a study first."""

import contextlib
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pytest
from matplotlib.figure import Figure
from seaborn import FacetGrid

from experiments import study_report
from experiments.results import write_csv
from experiments.study_report import About, main, render
from tests.experiments.rows import cell, sweep

ABOUT = About("A title", question="A question?", targets=(0.5,), commands=("python -m this",), notes=("A note.",))


class Tags(HTMLParser):
    """Keeps the tags that are open, and the addresses that a page would load."""

    def __init__(self) -> None:
        """Start with nothing open."""
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember a tag."""
        self.names.add(tag)
        self.loads += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href")]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that must be the last."""
        assert self.open.pop() == tag


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw the first figure of each format, and a small one in place of every other; arrange none before it is drawn."""
    small, drawn, savefig = Figure(figsize=(1, 1)), set[str](), Figure.savefig
    small.add_subplot(xticks=(), yticks=()).plot([1, 2])

    def draw(figure: Figure, file: BinaryIO, **settings: Any) -> None:
        savefig(small if settings["format"] in drawn else figure, file, **settings)
        drawn.add(settings["format"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", draw)
        patch.setattr(FacetGrid, "tight_layout", lambda grid: grid)
        yield


@contextlib.contextmanager
def without_figures() -> Iterator[None]:
    """Make pages without figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_report, "pictures", lambda study: iter(()))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the results of one cell and all that the command makes of them; its texts need escaping."""
    folder = tmp_path_factory.mktemp("study")
    write_csv(folder / "results.csv", cell([0.1, 0.5], method="<b>&"))
    (folder / "report.html").write_text("the study's own", encoding="utf-8")
    (folder / "results.html").write_text("an old one", encoding="utf-8")
    (folder / "environment.json").write_text('{"processor": "A <CPU>, 8 cores"}', encoding="utf-8")
    figures, tables = ["--figures", str(folder / "figures"), "--format", "svg", "pdf"], io.StringIO()
    latex = ["--latex", str(folder / "tables")]
    with contextlib.redirect_stdout(tables), drawing():
        main([str(folder / "results.csv"), "--title", "<script>alert(1)</script>", *figures, "--markdown", *latex])
    (folder / "tables.md").write_text(tables.getvalue(), encoding="utf-8")
    return folder


def text(html: str) -> str:
    """Return the visible text of a page, with single spaces."""
    return " ".join(re.sub("<[^>]*>", " ", html.partition("<body>")[2]).split())


@pytest.fixture(scope="module")
def complete() -> str:
    """Return the page of a complete study."""
    with drawing():
        return render(pd.concat(sweep()), ABOUT)


def test_the_page_loads_nothing_and_closes_what_it_opens(complete: str) -> None:
    tags = Tags()
    tags.feed(complete)
    assert tags.open == []
    assert "svg" in tags.names
    assert all(one.startswith("#") for one in tags.loads)
    assert not {"script", "img", "link"} & tags.names
    assert not re.search(r"url\((?!#)|@import", complete)


def test_the_page_has_title_question_commands_notes_and_every_method_with_its_settings(complete: str) -> None:
    for words in ("A title", "A question?", "python -m this", "A note.", "stc(density=0.01)", "FedAvg n = 25"):
        assert words in complete
    assert "12 runs, 2 methods, 3 settings" in text(complete)
    assert "Sattler" in complete  # the paper of STC
    assert "WebPageTest" in complete
    assert "target accuracies were chosen" in complete
    for name in ("final-against-classes-per-client", "best-against-classes-per-client", "pareto", "time-to-target"):
        assert f'<figure id="{name}">' in complete


@pytest.fixture(scope="module")
def known() -> str:
    """Return the page of one cell, whose environment is known, and whose downlink is a method within another."""
    about = About("A title", results="../results.csv", environment={"processor": "A <CPU>, 8 cores"}, made="made today")
    with without_figures():
        return render(cell([0.1, 0.5], downlink="balanced(stc(density=0.01))"), about)


def test_a_method_within_another_is_named_with_the_paper_of_the_outer_one(known: str) -> None:
    assert "balanced(stc(density=0.01))" in known
    assert "what returning nodes fetch" in known


def test_the_contents_lead_to_every_section_and_ids_are_unique(complete: str, known: str) -> None:
    ids = re.findall(r' id="([^"]*)"', complete)
    assert len(set(ids)) == len(ids)
    contents = re.findall('<a href="#([^"]*)">([^<]*)</a>', complete)
    assert contents == re.findall('<h2 id="([^"]*)">([^<]*)</h2>', complete)
    assert len(contents) == 12
    assert '<a href="#reproduce">' in complete
    assert '<a href="#reproduce">' not in known, "no commands are known"


def test_numbers_are_aligned_to_the_right_and_texts_are_not(complete: str) -> None:
    assert '<td class="number"><b>85.5 ± 0.7</b></td>' in complete
    assert "<td>stc(density=0.01)</td>" in complete


def test_the_page_names_environment_and_table_if_they_are_known(known: str, complete: str) -> None:
    assert '<a href="../results.csv">../results.csv</a>' in known
    assert '<th scope="row">processor</th><td>A &lt;CPU&gt;, 8 cores</td>' in known
    assert "made today" in known
    assert "not recorded" not in known
    assert "not recorded" in complete


@pytest.mark.nightly
def test_a_report_needs_only_the_table_of_results_and_escapes_its_texts(folder: Path) -> None:
    html = (folder / "results.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "<script>" not in html
    assert "<h1>&lt;script&gt;" in html
    assert "&lt;b&gt;&amp;" in html
    assert "--markdown --latex" in html
    assert '<a href="results.csv">' in html
    assert "with fedcomp" in html
    page = text(html)
    assert page.index("There is one seed") < page.index("Summary")
    assert "No target accuracy was given" in page
    assert "90% and 95%" in page


def test_the_command_writes_figures_prints_tables_and_leaves_other_files_alone(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        "environment.json", "figures", "report.html", "results.csv", "results.html", "tables", "tables.md",
    }  # fmt: skip
    assert (folder / "report.html").read_text(encoding="utf-8") == "the study's own"
    names = {one.name for one in (folder / "figures").iterdir()}
    for name in ("pareto", "accuracy-against-uplink", "time-to-target", "accuracy-over-lte"):
        assert {f"{name}.svg", f"{name}.pdf"} <= names
    assert (folder / "figures" / "pareto.pdf").read_bytes().startswith(b"%PDF")
    assert not list((folder / "figures").glob("*.png"))
    assert "| 45 % | <b>& |" in (folder / "tables.md").read_text(encoding="utf-8")
    assert {one.name for one in (folder / "tables").iterdir()} == {
        "accuracy.tex", "catch-up.tex", "ratios.tex", "targets.tex",
    }  # fmt: skip
    assert r"<b>\& & \textbf{50.0} \\" in (folder / "tables" / "accuracy.tex").read_text(encoding="utf-8")


def test_the_command_names_the_environment_that_was_recorded_next_to_the_results(folder: Path) -> None:
    html = (folder / "results.html").read_text(encoding="utf-8")
    assert '<th scope="row">processor</th><td>A &lt;CPU&gt;, 8 cores</td>' in html
    assert '<th scope="row">numpy</th>' not in html, "only what was recorded"
    assert "not recorded" not in html


def test_the_printed_tables_are_for_the_given_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "results.csv", cell([0.1]))
    with without_figures():
        main([str(tmp_path / "results.csv"), "--target", "0.4", "--markdown"])
    assert "| 40 % | STC 1/100 |" in capsys.readouterr().out
    assert "not recorded" in (tmp_path / "results.html").read_text(encoding="utf-8"), "no environment is known"


@pytest.mark.parametrize(("name", "out"), [("a.csv", ["--out", "new/../a.csv"]), ("a.html", [])])
def test_a_report_does_not_overwrite_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, out: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / name, cell([0.1]))
    before = (tmp_path / name).read_bytes()
    with pytest.raises(SystemExit) as end, without_figures():
        main([name, *out])
    assert end.value.code == 2
    assert name in capsys.readouterr().err
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("a,b\n1,2\n", [], "results.csv"),
        (None, [], "No such file"),
        (cell([0.1]).to_csv(index=False), ["--target", "80"], "80"),
        (cell([0.1]).to_csv(index=False), ["--slowdown", "-3"], "-3"),
        (cell([0.1]).to_csv(index=False), ["--slowdown", "inf"], "inf"),
        (cell([7.5]).to_csv(index=False), [], "7.5"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, more: list[str], words: str
) -> None:
    path = tmp_path / "results.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main([str(path), *more])
    assert end.value.code == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))
