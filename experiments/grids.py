"""Tables with a row a method and a column a setting: how well it ended there, what it sent, what it took to a target.

The columns are the values of one axis, that with the most of them; each setting of the other axes has a table of its own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.curves import Scenario, Study
from experiments.outcome import Measure, Spread, accuracies, dense_ratio, spread_at, total
from experiments.tables import Table, fewest, highest
from experiments.words import megabytes, percent, seeds


@dataclass(frozen=True, slots=True)
class Grid:
    """The scenarios of one table, with the heads of their columns and what they have in common."""

    scenarios: tuple[Scenario, ...]
    heads: tuple[str, ...]
    """Empty in a study without axes."""
    said: str
    """As ", by batch size (classes per client: 2)"; empty in a study without axes."""


def grids(study: Study) -> Iterator[Grid]:
    """Yield the grids of a study, in the order of its axes."""
    if not study.axes:
        yield Grid(study.scenarios, (), "")
        return
    axis = max(study.axes, key=lambda one: len(one.values))
    for rest in study.rests(axis):
        along = study.along(axis, rest)
        scenarios = tuple(along[value] for value in axis.values if value in along)
        common = study.title(scenarios[0], without=axis)
        heads = tuple(axis.format(value) for value in axis.values if value in along)
        yield Grid(scenarios, heads, f", by {axis.name}" + (f" ({common})" if common else ""))


def accuracy_tables(study: Study, measure: Measure) -> list[Table]:
    """Return the accuracy of each method; the best mean of each column marked, and who ties.

    A method of which a seed has no accuracy is not marked.
    """
    which = "at the last evaluation" if measure == "final" else "best of all evaluations"
    return [
        _table(
            study,
            grid,
            f"Test accuracy in percent, {which}{grid.said}: mean ± standard deviation over seeds.",
            "accuracy",
            lambda method, scenario: percent(accuracies(study, method, scenario, measure)),
            lambda scenario: highest([accuracies(study, method, scenario, measure) for method in study.methods]),
        )
        for grid in grids(study)
    ]


def byte_tables(study: Study, asked: Sequence[float]) -> list[Table]:
    """Return what each method had sent when it first reached a target accuracy, for each of those asked for."""
    return [_byte_table(study, grid, target) for target in dict.fromkeys(asked) for grid in grids(study)]


def _byte_table(study: Study, grid: Grid, target: float) -> Table:
    def sides(method: str, scenario: Scenario) -> list[Spread]:
        runs = study.seeds(method, scenario)
        return [spread_at(runs, target, side) for side in ("uplink_bytes", "downlink_bytes")]

    def cheapest(scenario: Scenario) -> list[int]:
        sums = [sides(method, scenario) for method in study.methods]
        return fewest([up.mean + down.mean if up.whole else math.nan for up, down in sums])

    return _table(
        study,
        grid,
        f"MB until {100 * target:g} % is first reached at an evaluation{grid.said}: up, and in brackets up and down; all "
        "nodes together, catch-up in down. Mean over the seeds that reach it; in bold the fewest in brackets, of the "
        "methods that reach it with every seed.",
        "up (up and down)",
        lambda method, scenario: _sent(*sides(method, scenario)),
        cheapest,
    )


def _sent(up: Spread, down: Spread) -> str:
    """Return "0.471 (8.91)", in MB."""
    if not up.count:
        return "never"
    sent = f"{megabytes(up.mean)} ({megabytes(up.mean + down.mean)})"
    return sent if up.whole else f"{sent}, {seeds(up)}"


def ratio_tables(study: Study) -> list[Table]:
    """Return how many times fewer bytes each method sent than plain Flower would have."""

    def ratios(method: str, scenario: Scenario) -> str:
        runs = study.seeds(method, scenario)
        up, both = dense_ratio(runs, ["uplink"]), dense_ratio(runs, ["uplink", "downlink"])
        return f"{up:.3g} ({both:.3g})" if up else "-"

    return [
        _table(
            study,
            grid,
            "How many times fewer bytes than plain Flower would have sent in the same rounds, over whole "
            f"runs{grid.said}: up, and in brackets up and down, catch-up in down. All seeds together.",
            "up (up and down)",
            ratios,
        )
        for grid in grids(study)
    ]


def catch_up_tables(study: Study) -> list[Table]:
    """Return how much of what each method sent down was for nodes that had been absent."""

    def share(method: str, scenario: Scenario) -> str:
        runs = study.seeds(method, scenario)
        down = total(runs, "downlink_bytes")
        return f"{100 * total(runs, 'catch_up_bytes') / down:.1f} %" if down else "-"

    return [
        _table(
            study,
            grid,
            f"How much of what was sent down is catch-up, over whole runs{grid.said}. All seeds together.",
            "catch-up",
            share,
        )
        for grid in grids(study)
    ]


def _table(
    study: Study,
    grid: Grid,
    caption: str,
    only: str,
    shown: Callable[[str, Scenario], str],
    best: Callable[[Scenario], Sequence[int]] = lambda _scenario: (),
) -> Table:
    """Return the table of a grid: what is `shown` of a method in a scenario, and nothing where it has not run.

    `only` heads the column of a study without axes; `best` tells the rows to mark in a scenario's column.
    """

    def cell(method: str, scenario: Scenario) -> str:
        return shown(method, scenario) if study.seeds(method, scenario) else ""

    return Table(
        caption,
        ("method", *(grid.heads or (only,))),
        tuple((method, *(cell(method, scenario) for scenario in grid.scenarios)) for method in study.methods),
        frozenset((y, x) for x, scenario in enumerate(grid.scenarios, start=1) for y in best(scenario)),
    )
