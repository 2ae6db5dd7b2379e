"""The report is one self-contained page, which escapes all texts and states the limits of a study first."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from experiments.results import write_csv
from experiments.study_report import About, main, render, write
from tests.experiments.rows import cell, rows, sweep

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
        self.loads += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that must be the last."""
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def short() -> str:
    """Return the page of a study of one cell, with texts that need escaping and no targets."""
    about = About("<script>alert(1)</script>", notes=('"<i>',), cells_done=1, cells_all=40)
    return render(cell([0.1, 0.5], method="<b>&"), about)


def text(html: str) -> str:
    """Return the visible text of a page, with single spaces."""
    return " ".join(re.sub("<[^>]*>", " ", html.partition("<body>")[2]).split())


@pytest.fixture(scope="module")
def complete() -> str:
    """Return the page of a complete study."""
    return render(pd.concat(sweep()), ABOUT)


def test_the_page_loads_nothing_and_closes_what_it_opens(complete: str) -> None:
    tags = Tags()
    tags.feed(complete)
    assert tags.open == []
    assert tags.loads
    assert all(one.startswith("data:image/png;base64,iVBOR") for one in tags.loads)
    assert "script" not in tags.names


def test_the_page_has_title_question_commands_notes_and_every_method_with_its_settings(complete: str) -> None:
    for words in ("A title", "A question?", "python -m this", "A note.", "stc(density=0.01)", "FedAvg n = 25"):
        assert words in complete
    assert "12 runs, 2 methods, 3 settings" in text(complete)
    assert "Sattler" in complete  # the paper of STC
    assert "WebPageTest" in complete
    assert "target accuracies were chosen" in complete


def test_texts_are_escaped(short: str) -> None:
    assert "<script>" not in short
    assert "&lt;script&gt;" in short
    assert "&lt;b&gt;&amp;" in short


def test_the_limits_of_a_study_come_first(short: str) -> None:
    html = text(short)
    assert html.index("1 of 40 cells") < html.index("There is one seed") < html.index("Summary")


def test_targets_that_were_not_given_are_explained(short: str) -> None:
    assert "No target accuracy was given" in text(short)
    assert "90% and 95%" in text(short)


def test_a_study_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        render(rows(0), ABOUT)


@pytest.mark.parametrize(("setting", "value"), [("targets", (0.5, 80.0)), ("targets", (0.0,)), ("slowdown", 0.0)])
def test_targets_and_slowdowns_out_of_range_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=str(value[-1] if isinstance(value, tuple) else value).removesuffix(".0")):
        About("t", **{setting: value})  # type: ignore[arg-type]


def test_a_page_replaces_an_old_one_and_its_figures_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an old one", encoding="utf-8")
    write(path, cell([0.1, 0.5]), ABOUT, tmp_path / "figures")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["figures", "report.html"]
    names = {one.name for one in (tmp_path / "figures").iterdir()}
    assert {"pareto.png", "accuracy-against-uplink.png", "time-to-target.png"} <= names


def test_a_report_needs_only_the_table_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "results.csv", cell([0.1, 0.5]))
    (tmp_path / "report.html").write_text("the study's own", encoding="utf-8")
    main([str(tmp_path / "results.csv"), "--title", "Made again", "--target", "0.4", "--markdown"])
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "the study's own"
    html = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert "results.csv --title &#39;Made again&#39; --target 0.4 --markdown" in html
    assert "<h1>Made again</h1>" in (tmp_path / "results.html").read_text(encoding="utf-8")
    assert "| 40 % | STC 1/100 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("a,b\n1,2\n", [], "results.csv"),
        (None, [], "No such file"),
        ("", ["--target", "80"], "80"),
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
