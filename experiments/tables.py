"""The tables of a study by method and setting: accuracy, compression ratio and catch-up."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from experiments.study import Measure, Study, dense_ratio, spread, winners


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts, with a caption that says what its numbers are; `best` are the (row, column) of the best cells."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = field(default=frozenset())

    def to_markdown(self) -> str:
        """Return the table as Markdown: the caption, a line for the head and for each row, the best cells in bold."""
        rows = [
            [f"**{cell}**" if (y, x) in self.best else cell for x, cell in enumerate(row)]
            for y, row in enumerate(self.rows)
        ]
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *rows]
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.caption}\n\n{text}\n"

    def without_first_column(self) -> "Table":
        """Return the table without its first column."""
        best = frozenset((y, x - 1) for y, x in self.best)
        return Table(self.caption, self.head[1:], tuple(row[1:] for row in self.rows), best)


def percent(value: pd.Series) -> str:
    """Return a row of `spread` as "85.8 ± 0.2", in percent: mean and standard deviation over seeds; "-" without any.

    If not all seeds have a number, the text says how many have.
    """
    if not value["count"]:
        return "-"
    text = f"{100 * value['mean']:.1f}" + (f" ± {100 * value['std']:.1f}" if value["count"] > 1 else "")
    return text if value["whole"] else f"{text} ({seeds(value)})"


def seeds(value: "pd.Series[float]") -> str:
    """Return how many seeds of a row of `spread` have a number, as "2 of 3 seeds"."""
    return f"{value['count']:.0f} of {value['of']:.0f} seed{'s' if value['of'] > 1 else ''}"


def megabytes(size: float) -> str:
    """Return a size in MB (10^6 bytes) with three digits, as 0.524 or 1,570."""
    value = size / 1e6
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}".rstrip(".")


def methods_table(study: Study) -> Table:
    """Return each method with its settings, and its compression ratios."""
    columns = ("uplink", "downlink", "strategy", "local_steps", "learning_rate", "momentum")
    rows = []
    for method, runs in study.runs.groupby("method", observed=True):
        ratios = [dense_ratio(runs, side) for side in ("uplink", "downlink")]
        texts = [f"{ratio:.1f}" if ratio else "-" for ratio in ratios]
        rows.append((str(method), *(study.setting(str(method), column) for column in columns), *texts))
    return Table(
        "Ratio: the bytes that plain Flower would have sent over those sent, both measured, over all cells of the method; "
        "down includes the catch-up of nodes that were absent.",
        ("method", *(column.replace("_", " ") for column in columns), "ratio up", "ratio down"),
        tuple(rows),
    )


def accuracy_tables(study: Study, measure: Measure) -> list[Table]:
    """Return the accuracy of each method by setting; the best means of each column are marked.

    A method with a seed that has no accuracy is not marked.
    """
    which = "at the last evaluation" if measure == "final" else "best of all evaluations"
    ends = spread(study.runs, measure)
    texts = ends.apply(percent, axis=1)
    caption = f"Test accuracy in percent, {which}{{}}: mean ± standard deviation over seeds."
    return grid_tables(
        study, caption, "accuracy", texts, best_cells(ends, lambda mean: f"{100 * mean:.1f}", highest=True)
    )


def ratio_tables(study: Study) -> list[Table]:
    """Return how many times fewer bytes each method sent than plain Flower would have."""

    def ratios(runs: pd.DataFrame) -> str:
        up, both = dense_ratio(runs, "uplink"), dense_ratio(runs, "uplink", "downlink")
        return f"{up:.3g} ({both:.3g})" if up else "-"

    caption = (
        "How many times fewer bytes than plain Flower would have sent in the same rounds, over complete runs{}: up, and in "
        "brackets up and down, catch-up included in down. All seeds together."
    )
    return grid_tables(study, caption, "up (up and down)", _by_method(study, ratios))


def catch_up_tables(study: Study) -> list[Table]:
    """Return the share of the downlink bytes of each method that went to nodes that had been absent."""

    def share(runs: pd.DataFrame) -> str:
        down = runs["downlink_bytes"].sum()
        return f"{100 * runs['catch_up_bytes'].sum() / down:.1f} %" if down else "-"

    caption = "The share of the downlink bytes that is catch-up, over complete runs{}. All seeds together."
    return grid_tables(study, caption, "catch-up", _by_method(study, share))


def best_cells(
    values: pd.DataFrame, show: Callable[[float], str], *, highest: bool = False
) -> list[tuple[object, ...]]:
    """Return the keys of the methods with the lowest or highest mean of each group of a `spread`, as shown.

    Methods that show the same text tie. A method counts only if every seed has a number.
    """
    means = values["mean"].where(values["whole"])
    found = []
    for _, group in means.groupby(level=list(range(means.index.nlevels - 1)), observed=True, sort=False):
        numbers = group.tolist()
        texts = [show(number) if math.isfinite(number) else "" for number in numbers]
        found += [group.index[at] for at in winners(numbers, texts, highest=highest)]
    return found


def _by_method(study: Study, show: Callable[[pd.DataFrame], str]) -> dict[tuple[str, str], str]:
    groups = study.runs.groupby(["scenario", "method"], observed=True)
    return {(str(scenario), str(method)): show(runs) for (scenario, method), runs in groups}


def grid_tables(
    study: Study,
    caption: str,
    only: str,
    texts: "Mapping[tuple[str, str], str] | pd.Series[str]",
    best: Sequence[tuple[object, ...]] = (),
) -> list[Table]:
    """Return tables with a row for each method and a column for each value of the longest axis.

    Each combination of values of the other axes has its own table. `texts` and `best` have the keys (scenario, method);
    `caption` has a place for what the table is about; `only` heads the column of a study without axes.
    """
    return [
        Table(
            caption.format(about),
            ("method", *(heads or (only,))),
            tuple((method, *(texts.get((scenario, method), "") for scenario in scenarios)) for method in study.methods),
            frozenset(
                (y, x)
                for x, scenario in enumerate(scenarios, start=1)
                for y, method in enumerate(study.methods)
                if (scenario, method) in best
            ),
        )
        for scenarios, heads, about in _columns(study)
    ]


def _columns(study: Study) -> Iterator[tuple[list[str], tuple[str, ...], str]]:
    """Yield the scenarios of each table, the heads of their columns, and ", by batch size (classes per client: 2)"."""
    if not study.axes:
        yield list(study.scenarios), (), ""
        return
    axis = max(study.axes, key=lambda one: len(one.values))
    at = study.axes.index(axis)
    for common, scenarios in study.split(axis).items():
        heads = tuple(axis.format(study.scenarios[scenario][at]) for scenario in scenarios)
        yield scenarios, heads, f", by {axis.name}" + (f" ({common})" if common else "")
