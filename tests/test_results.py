"""The results pages say what was measured: their tables are those of the published results, and claims cite their pages."""

import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import catching_up
from experiments.automatic import by_length, compare
from experiments.results import read_csv
from experiments.study_report import named_tables
from experiments.table import Table

RESULTS = Path(__file__).parents[1] / "docs" / "results"
NUMBER = r"\d[\d,]*(?:\.\d+)?"


def table_rows(page: str, first: str) -> list[list[str]]:
    """Return the cells of the table rows of a page that begin with a match of `first`."""
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(rf"\| {first}", line)]


ROWS = table_rows("claims.md", r"(?:\*\*|STC)")


def test_every_claim_has_a_verdict() -> None:
    assert len(ROWS) > 25
    for claim, measured, verdict in ROWS:
        assert verdict.startswith(("holds", "in part", "does not")), claim
        assert "](" in measured, claim


@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"\W+", "-", row[0])[:40] for row in ROWS])
def test_the_numbers_of_a_claim_are_on_the_page_that_it_names(row: list[str]) -> None:
    sources = re.findall(r"\[[^\]]+\]\(([\w./-]+)[^)]*\)([^\[]*)", row[1])
    assert sources
    for page, text in sources:
        known = re.findall(NUMBER, (RESULTS / page).read_text(encoding="utf-8"))
        settings = r"density \d+\.\d+|gamma \d+\.\d+|skew \d+\.\d+"
        for number in re.findall(r"\d+\.\d+", re.sub(settings, "", text)):
            assert number in known, f"{number} is not on {page}"


REPORT = re.compile(r"fedcomp report docs/results/([\w-]+)/results\.csv(?: --target((?: [\d.]+)+))?")
SETTINGS = ["round", "strategy"]
"""What a table may say of a method besides the numbers of the report; on the pages on training also its seconds."""
Section = tuple[str, str, list[tuple[str, str]]]


def sections() -> list[Section]:
    """Return (page, text, folder and targets of its reports) of each section with the command of a report."""
    parts = [
        (page.name, part)
        for page in [*sorted(RESULTS.glob("*.md")), *sorted(RESULTS.parent.glob("how-to/training/*.md"))]
        for part in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    return [(page, part, found) for page, part in parts if (found := REPORT.findall(part))]


def tables_in(text: str) -> list[list[list[str]]]:
    """Return the cells of each row of each table, the head first."""
    tables = re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.MULTILINE)
    cells = [
        [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in tables
    ]
    return [[rows[0], *rows[2:]] for rows in cells]


def test_the_sections_of_all_studies_are_found() -> None:
    assert len(sections()) > 20
    assert all(tables_in(text) for _, text, _ in sections())


@pytest.mark.parametrize(
    ("page", "text", "reports"),
    [pytest.param(*section, id=f"{section[0]}-{section[2][0][0]}") for section in sections()],
)
def test_the_tables_of_a_section_have_the_numbers_that_its_report_prints(
    page: str, text: str, reports: list[tuple[str, str]]
) -> None:
    """A table with the head of a printed one is that table; each row of another has numbers of one method.

    No method of the study is left out.  The pages on training have further tables, which other commands print: those name
    one method of the study at most.
    """
    of_results = (RESULTS / page).exists()
    settings = SETTINGS if of_results else [*SETTINGS, "client_seconds"]
    printed, known = list[list[list[str]]](), dict[str, set[str]]()
    for folder, targets in reports:
        results = read_csv(RESULTS / folder / "results.csv")
        for method, runs in results.groupby("method"):
            last = runs.groupby("cell").tail(1)[settings].round({"client_seconds": 1}).astype(str)
            known.setdefault(str(method), set()).update(re.findall(NUMBER, " ".join(last.to_numpy().ravel())))
        for table in named_tables(results, [float(target) for target in targets.split()]).values():
            printed.append([row.split(" | ") for row in _markdown(table)])
            for row in table.rows:
                for method in known.keys() & {*row}:
                    known[method].update(re.findall(NUMBER, " ".join(row)))
    if of_results:
        names = {name for _, *rows in tables_in(text) for name, *_ in rows}
        assert len(names) >= len(known), "a row may describe its method in other words"
        assert len(known.keys() & names) in (0, 1, len(known))
    for head, *rows in tables_in(text):
        alike = [table[1:] for table in printed if table[0] == head]
        if any(len(table) == len(rows) for table in alike):
            assert rows in alike
        named = [row for row in rows if row[0] in known]
        for name, *cells in rows if of_results else named if len(named) > 1 else []:
            numbers = {number.replace(",", "") for number in re.findall(NUMBER, " ".join(cells))}
            methods = [name] if name in known else [*known]
            assert any(numbers <= {each.replace(",", "") for each in known[method]} for method in methods), name


def _markdown(table: Table) -> list[str]:
    """Return the cells of the head and of the rows, joined, with the best in bold."""
    lines = [line.strip("| ") for line in table.to_markdown().splitlines() if line.startswith("|")]
    return [lines[0], *lines[2:]]


def test_the_tables_of_the_downlink_are_those_that_the_report_prints() -> None:
    folders = [RESULTS / f"{task}-downlink" for task in ("mnist-logistic", "fashion-cnn")]
    reports = [named_tables(read_csv(folder / "results.csv"), [0.75]) for folder in folders]
    tables = [[{row[0]: row[1:] for row in report[name].rows} for report in reports] for name in ("accuracy", "ratios")]
    for method in dict.fromkeys(method for by_task in tables for printed in by_task for method in printed):
        rows = table_rows("downlink.md", re.escape(method) + r" \|")
        assert len(rows) == (1 if method == "SGD, dense" else 2), "without the ratios of what is not compressed"
        for row, by_task in zip(rows, tables, strict=False):
            cells = [cell for printed in by_task for cell in printed.get(method, ("not run", "not run"))]
            assert [cell.strip("*") for cell in row[1:]] == cells, method


def test_the_table_of_nodes_that_were_away_is_what_its_command_prints() -> None:
    results = pd.read_csv(RESULTS / "catching-up" / "bytes.csv")
    printed = [[*row.values()] for row in catching_up.table(results)]
    assert table_rows("catching-up.md", "(?:whole|each|one|own|gamma|balanced) ") == printed
    page = (RESULTS / "catching-up.md").read_text(encoding="utf-8")
    runs = catching_up.accuracies(results)
    for downlink in (catching_up.STC, catching_up.BALANCED):
        *most, last = [run["accuracy"] for run in runs if run["downlink"] == downlink]
        assert f"{', '.join(most)} and {last} %" in page


@pytest.mark.parametrize(("folder", "seeds"), [("gossip-digits", 1), ("gossip-fashion", 3)])
def test_a_table_of_gossip_has_the_numbers_of_its_results(folder: str, seeds: int) -> None:
    table = pd.read_csv(RESULTS / folder / "float32.csv")
    last = table[table["round"] == table["round"].max()]
    rows = [
        row
        for row in table_rows("../how-to/gossip.md", r"(`skewed.*)?\| `(choco|deep)")
        if ("±" in row[2]) == (seeds > 1)
    ]
    groups = list(last.groupby(["partition", "method"], sort=False))
    for row, ((_, method), runs) in zip(rows[: len(groups)], groups, strict=True):  # other tables follow
        mean = 100 * runs["accuracy"]
        ratio = runs["dense_bytes"].sum() / runs["sent_bytes"].sum()
        printed = f"{mean.mean():.1f} ± {mean.std():.1f}" if seeds > 1 else f"{mean.mean():.1f}"
        worst, distance = 100 * runs["worst_accuracy"].mean(), runs["consensus_distance"].mean()
        assert row[1:6] == [f"`{method}`", printed, f"{worst:.1f}", f"{distance:.3f}", f"{ratio:.1f}x"]


def test_the_table_of_the_automatic_choice_is_what_its_command_prints() -> None:
    lines = compare(read_csv(RESULTS / "auto" / "results.csv"))
    printed, counts = by_length(lines), re.findall(r"in (\d+ of \d+) lines, and in (\d+) of these", lines.caption)
    text = (RESULTS / "automatic-choice.md").read_text(encoding="utf-8")
    assert re.findall(r"in (\d+ of \d+) lines\*\*, and in (\d+) of these", text) == counts
    assert table_rows("automatic-choice.md", "(?:digits|fashion|sonnets|speech)") == [
        [*row] for table in printed for row in table.rows
    ]


def test_the_table_of_the_constants_of_the_automatic_choice_has_the_numbers_of_its_results() -> None:
    rows: dict[str, list[str]] = {}
    for folder, rounds, seeds in (
        ("auto-constants", 100, 3),
        ("auto-constants-all-nodes", 100, 3),
        ("auto-constants-short", 10, 6),
    ):
        table = read_csv(RESULTS / folder / "results.csv")
        last = table[table["round"] == rounds]
        last = last.assign(
            sent=last["uplink_bytes"] + last["downlink_bytes"],
            plain=last["dense_uplink_bytes"] + last["dense_downlink_bytes"],
        )
        runs = last.groupby(["method", "model"])
        assert set(runs.size()) == {seeds}
        accuracy, spread = 100 * runs["accuracy"].mean(), 100 * runs["accuracy"].std()
        ratio = (runs["plain"].sum() / runs["sent"].sum())[f"auto, {rounds} rounds"]
        models = ["logistic", "mlp", "lora"]
        for label, method in (("dense", "dense"), ("auto", f"auto, {rounds} rounds")):
            cells = [f"{accuracy[method, model]:.1f} ± {spread[method, model]:.1f}" for model in models]
            rows.setdefault(f"accuracy in percent, {label}", []).extend(cells)
        rows.setdefault("fewer bytes, auto", []).extend(f"{ratio[model]:.3g}" for model in models)
    printed = [[method, *cells] for method, cells in rows.items()]
    assert table_rows("../explanation/automatic-choice.md", "(?:accuracy in|fewer)") == printed


@pytest.mark.parametrize(
    ("task", "folder"),
    [("digits", "digits"), ("MNIST", "mnist-logistic"), ("Fashion-MNIST", "fashion-cnn")],
)
def test_the_table_of_the_default_has_the_numbers_of_its_results(task: str, folder: str) -> None:
    table = read_csv(RESULTS / f"default-{folder}" / "results.csv")
    last = table[table["round"] == table["round"].max()].set_index(["method", "seed"])
    plain, default = last.loc["plain Flower"], last.loc["fedcomp, default"]
    gap = 100 * (default["accuracy"] - plain["accuracy"])
    five = 100 * table.groupby(["method", "seed"]).tail(5).groupby(["method", "seed"])["accuracy"].mean()
    late = five["fedcomp, default"] - five["plain Flower"]
    up, down = (plain[f"{link}_bytes"].sum() / default[f"{link}_bytes"].sum() for link in ("uplink", "downlink"))
    sent = [run[["uplink_bytes", "downlink_bytes"]].sum(axis=1).mean() / 1e6 for run in (plain, default)]
    [row] = table_rows("default.md", f"{task}, ")
    assert row[3:7] == [
        *(f"{100 * run['accuracy'].mean():.1f}" for run in (plain, default)),
        *(f"{each.mean():+.1f} ± {each.std():.1f}" for each in (gap, late)),
    ]
    assert float(row[7].split()[0].replace(",", "")) == pytest.approx(sent[0], rel=1e-3)
    assert row[8:] == [f"{sent[1]:.1f} MB", *(f"{ratio:.1f}" for ratio in (sent[0] / sent[1], up, down))]
