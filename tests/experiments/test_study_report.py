"""The page: whole in one file, what it must say of an unfinished or diverged study, and nothing unescaped."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.results import Row, to_frame, write_csv
from experiments.study_report import About, main, render, write
from tests.experiments.rows import cell, study

ABOUT = About("A title", question="A question?", targets=(0.5,), commands=("python -m this",), notes=("A note.",))


class Tags(HTMLParser):
    """Counts what is opened and not closed, and gathers what a page would load."""

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


def page(rows: list[Row], about: About = ABOUT) -> str:
    """Return the page's HTML."""
    return render(to_frame(rows), about)


def text(html: str) -> str:
    """Return what a reader sees, spaces evened."""
    return " ".join(re.sub("<[^>]*>", " ", html.partition("<body>")[2]).split())


@pytest.fixture(scope="module")
def whole() -> str:
    """Return the page of a whole study."""
    return page(study())


def test_the_page_loads_nothing_and_closes_what_it_opens(whole: str) -> None:
    tags = Tags()
    tags.feed(whole)
    assert tags.open == []
    assert tags.loads
    assert all(one.startswith("data:image/png;base64,iVBOR") for one in tags.loads)
    assert "script" not in tags.names


def test_it_says_title_question_commands_notes_and_every_method_with_its_settings(whole: str) -> None:
    for said in ("A title", "A question?", "python -m this", "A note.", "stc(density=0.01)", "FedAvg n = 25"):
        assert said in whole
    assert "12 runs, 2 methods, 3 settings" in text(whole)
    assert "Sparse ternary compression with error feedback." in whole
    assert "WebPageTest" in whole
    assert "target accuracies were given" in whole


def test_texts_are_escaped() -> None:
    html = page(cell([0.1, 0.5], method="<b>&"), About("<script>alert(1)</script>", notes=('"<i>',)))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;&amp;" in html


def test_what_a_reader_must_know_first_stands_first() -> None:
    html = text(page(cell([0.1, 0.5]), About("t", cells_done=1, cells_all=40)))
    assert html.index("1 of 40 cells") < html.index("There is one seed") < html.index("In short")


def test_targets_that_were_not_given_are_explained() -> None:
    html = text(page(cell([0.1, 0.5]), About("t")))
    assert "No target accuracy was given" in html
    assert "90% and 95%" in html


def test_a_study_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one finished cell"):
        page([])


@pytest.mark.parametrize(("setting", "value"), [("targets", (0.5, 80.0)), ("targets", (0.0,)), ("slowdown", 0.0)])
def test_what_cannot_be_meant_is_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match="is needed"):
        About("t", **{setting: value})  # type: ignore[arg-type]


def test_a_page_is_replaced_in_one_step_and_its_figures_can_be_had(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an old one", encoding="utf-8")
    write(path, to_frame(cell([0.1, 0.5])), ABOUT, tmp_path / "figures")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["figures", "report.html"]
    names = {one.name for one in (tmp_path / "figures").iterdir()}
    assert {"pareto.png", "accuracy-against-uplink.png", "time-to-target.png"} <= names


def test_a_report_can_be_made_anew_from_the_table_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "results.csv", cell([0.1, 0.5]))
    (tmp_path / "report.html").write_text("the study's own", encoding="utf-8")
    main([str(tmp_path / "results.csv"), "--title", "Made anew", "--target", "0.4", "--markdown"])
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "the study's own"
    html = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert "results.csv --title &#39;Made anew&#39; --target 0.4 --markdown" in html
    assert "<h1>Made anew</h1>" in (tmp_path / "results.html").read_text(encoding="utf-8")
    assert "| 40 % | STC 1/100 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("a,b\n1,2\n", [], "no table of results"),
        (None, [], "No such file"),
        ("", ["--target", "80"], "target accuracy 80"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, more: list[str], said: str
) -> None:
    path = tmp_path / "results.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main([str(path), *more])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))
