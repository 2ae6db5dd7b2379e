"""The tables of a study: its methods, how well they ended, and what it took to get to a target; also as Markdown."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.study.curves import Curve, Study, read
from benchmarks.study.network import format_duration, seconds
from benchmarks.study.outcome import Measure, Spread, accuracies, at_target, spread, targets, winners
from benchmarks.study.words import megabytes, percent, seeds
from deploy.profiles import PROFILES, Profile
from server.progress import format_bytes


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts, with a caption that says what its numbers are; `best` are (row, column) of the best cells."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()

    def to_markdown(self) -> str:
        """Return the table as Markdown: the caption, a line for the head and each row, the best in bold."""
        rows = [
            [f"**{cell}**" if (y, x) in self.best else cell for x, cell in enumerate(row)]
            for y, row in enumerate(self.rows)
        ]
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *rows]
        text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.caption}\n\n{text}\n"


def markdown(frame: pd.DataFrame, asked: Sequence[float] = ()) -> str:
    """Return final accuracy by method and scenario, bytes to target, and what whole runs sent, as Markdown.

    `asked` are the target accuracies, 0 to 1; with none they follow from the results, see `outcome.targets`.
    """
    study = read(frame)
    tables = (
        accuracy_table(study, "final"),
        *byte_tables(study, asked),
        target_table(study, asked),
        ratio_table(study),
        catch_up_table(study),
    )
    return "\n".join(table.to_markdown() for table in tables)


def methods_table(study: Study) -> Table:
    """Return each method with its settings, and what it sent beside plain Flower."""
    columns = ("uplink", "downlink", "strategy", "local_steps", "learning_rate", "momentum")
    rows = []
    for method in study.methods:
        runs = [curve for curve in study.curves if curve.method == method]
        up, down = (_ratio(runs, [side]) for side in ("uplink", "downlink"))
        ratios = [f"{ratio:.1f}" if ratio else "-" for ratio in (up, down)]
        rows.append((method, *(study.setting(method, column) for column in columns), *ratios))
    return Table(
        "Ratio: what plain Flower would have sent, over what was sent, both measured, over all cells of the "
        "method; down holds the catch-up of nodes that were absent.",
        (
            "method", "uplink", "downlink", "strategy", "local steps", "learning rate", "momentum",
            "ratio up", "ratio down",
        ),
        tuple(rows),
    )  # fmt: skip


def accuracy_table(study: Study, measure: Measure) -> Table:
    """Return the accuracy of each method, a column a scenario; the best mean of each column marked, and who ties.

    A method of which a seed has no accuracy is not marked.
    """
    spreads = [[accuracies(study, method, one, measure) for one in study.scenarios] for method in study.methods]
    best = set()
    for x in range(len(study.scenarios)):
        best |= {(y, x + 1) for y in highest([row[x] for row in spreads])}
    which = "at the last evaluation" if measure == "final" else "best of all evaluations"
    return Table(
        f"Test accuracy in percent, {which}{_along(study)}: mean ± standard deviation over seeds.",
        ("method", *_heads(study, "accuracy")),
        tuple(
            (method, *(percent(cell) if cell.of else "" for cell in row))
            for method, row in zip(study.methods, spreads, strict=True)
        ),
        frozenset(best),
    )


def byte_tables(study: Study, asked: Sequence[float]) -> list[Table]:
    """Return a table for each target accuracy asked for: what each method had sent by then, a column a scenario."""
    return [_byte_table(study, target) for target in dict.fromkeys(asked)]


def _byte_table(study: Study, target: float) -> Table:
    columns: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    for x, scenario in enumerate(study.scenarios, start=1):
        runs = [study.seeds(method, scenario) for method in study.methods]
        sums = [[_at(each, target, side) for side in ("uplink_bytes", "downlink_bytes")] for each in runs]
        best |= {(y, x) for y in fewest([up.mean + down.mean if up.whole else math.nan for up, down in sums])}
        columns.append([_sent(up, down) if up.of else "" for up, down in sums])
    return Table(
        f"MB until {100 * target:g} % is first reached at an evaluation{_along(study)}: up, and in brackets up and down; all "
        "nodes together, catch-up in down. Mean over the seeds that reach it; in bold the fewest in brackets, of the "
        "methods that reach it with every seed.",
        ("method", *_heads(study, "up (up and down)")),
        tuple((method, *row) for method, row in zip(study.methods, zip(*columns, strict=True), strict=True)),
        frozenset(best),
    )


def _sent(up: Spread, down: Spread) -> str:
    """Return "0.471 (8.91)", in MB."""
    if not up.count:
        return "never"
    sent = f"{megabytes(up.mean)} ({megabytes(up.mean + down.mean)})"
    return sent if up.whole else f"{sent}, {seeds(up)}"


def _heads(study: Study, only: str) -> list[str]:
    """Return a head for each scenario: the value alone where one axis is swept, and `only` where none is."""
    single = study.axes[0] if len(study.axes) == 1 else None
    return [single.format(one[0]) if single else study.title(one) or only for one in study.scenarios]


def _along(study: Study) -> str:
    return f", by {study.axes[0].name}" if len(study.axes) == 1 else ""


def target_table(study: Study, asked: Sequence[float]) -> Table:
    """Return what each method had sent when it first reached a target accuracy, as the table of the STC paper."""
    rows: list[tuple[str, ...]] = []
    best: set[tuple[int, int]] = set()
    for scenario in study.scenarios:
        for target in targets(study, scenario, asked):
            first = len(rows)
            costs: list[float] = []
            for method in study.methods:
                if not (runs := study.seeds(method, scenario)):
                    continue
                up, down = (_at(runs, target, side) for side in ("uplink_bytes", "downlink_bytes"))
                costs.append(up.mean + down.mean if up.whole else math.nan)
                shown = _target_cells(runs, target, up, down) if up.count else ("-",) * 7
                rows.append((study.title(scenario), f"{100 * target:g} %", method, *shown, seeds(up)))
            best |= {(first + at, 7) for at in fewest(costs)}
    head = (
        "setting",
        "target",
        "method",
        "rounds",
        "iterations",
        "up (MB)",
        "down (MB)",
        "both (MB)",
        "up a message",
        "down a message",
    )
    table = Table(
        "Bytes until the target accuracy is first reached at an evaluation; - where it never is. Mean over the seeds "
        "that reach it. Up, down and both: all nodes together, catch-up in down; in bold the fewest of the methods that "
        "reach it with every seed. A message: divided by rounds and by the clients that take part in a round.",
        (*head, "reached by"),
        tuple(rows),
        frozenset(best),
    )
    return table if study.axes else _without_first(table)


def ratio_table(study: Study) -> Table:
    """Return how many times fewer bytes each method sent than plain Flower would have, a column a scenario."""

    def ratios(runs: Sequence[Curve]) -> str:
        up, both = _ratio(runs, ["uplink"]), _ratio(runs, ["uplink", "downlink"])
        return f"{up:.3g} ({both:.3g})" if up else "-"

    return Table(
        "How many times fewer bytes than plain Flower would have sent in the same rounds, over whole runs: up, and in "
        f"brackets up and down, catch-up in down{_along(study)}. All seeds together.",
        ("method", *_heads(study, "up (up and down)")),
        _by_scenario(study, ratios),
    )


def catch_up_table(study: Study) -> Table:
    """Return how much of what each method sent down was for nodes that had been absent, a column a scenario."""

    def share(runs: Sequence[Curve]) -> str:
        down = _total(runs, "downlink_bytes")
        return f"{_total(runs, 'catch_up_bytes') / down:.1%}".replace("%", " %") if down else "-"

    return Table(
        f"How much of what was sent down is catch-up, over whole runs{_along(study)}. All seeds together.",
        ("method", *_heads(study, "catch-up")),
        _by_scenario(study, share),
    )


def _by_scenario(study: Study, shown: Callable[[Sequence[Curve]], str]) -> tuple[tuple[str, ...], ...]:
    """Return a row a method: what is shown of its seeds in each scenario, and nothing where there are none."""
    found = [[study.seeds(method, scenario) for scenario in study.scenarios] for method in study.methods]
    return tuple(
        (method, *(shown(runs) if runs else "" for runs in row))
        for method, row in zip(study.methods, found, strict=True)
    )


def time_table(
    study: Study, asked: Sequence[float], slowdown: float = 1.0, profiles: Sequence[Profile] = PROFILES
) -> Table:
    """Return the time until each method first reaches a target accuracy, a column a network."""
    rows = []
    for scenario in study.scenarios:
        for target in targets(study, scenario, asked):
            for method in study.methods:
                if runs := study.seeds(method, scenario):
                    times = [
                        spread([at_target(run, target, seconds(run.measured, profile, slowdown)) for run in runs])
                        for profile in profiles
                    ]
                    shown = [format_duration(time.mean) if time.count else "-" for time in times]
                    rows.append((study.title(scenario), f"{100 * target:g} %", method, *shown, seeds(times[0])))
    table = Table(
        "Time until the target accuracy is first reached, over four networks; - where it never is. "
        "Mean over the seeds that reach it.",
        ("setting", "target", "method", *(profile.name for profile in profiles), "reached by"),
        tuple(rows),
    )
    return table if study.axes else _without_first(table)


def highest(ends: Sequence[Spread]) -> list[int]:
    """Return the indices of the highest mean accuracy, to the digits shown, of those with a number for every seed."""
    means = [end.mean if end.whole else math.nan for end in ends]
    return winners([(mean, f"{100 * mean:.1f}") for mean in means], most=True)


def fewest(costs: Sequence[float]) -> list[int]:
    """Return the indices of the fewest bytes, to the digits shown; NaN stands for a method that is out."""
    return winners([(cost, megabytes(cost)) for cost in costs])


def network_table(profiles: Sequence[Profile] = PROFILES) -> Table:
    """Return the networks, each with its source."""
    return Table(
        "The networks. A Mbit is 10^6 bits.",
        ("network", "up (Mbit/s)", "down (Mbit/s)", "round trip (ms)", "source"),
        tuple(
            (one.name, f"{one.up_mbit_s:g}", f"{one.down_mbit_s:g}", f"{one.round_trip_ms:g}", one.source)
            for one in profiles
        ),
    )


def _target_cells(runs: Sequence[Curve], target: float, up: Spread, down: Spread) -> tuple[str, ...]:
    rounds, iterations = (_at(runs, target, column) for column in ("round", "iterations"))
    messages = rounds.mean * float(runs[0].settings["clients"]) * float(runs[0].settings["participation"])
    each = [format_bytes(side.mean / messages) if messages else "-" for side in (up, down)]
    sums = (megabytes(size) for size in (up.mean, down.mean, up.mean + down.mean))
    counts = (f"{count.mean:.1f}".removesuffix(".0") for count in (rounds, iterations))
    return (*counts, *sums, *each)


def _at(runs: Sequence[Curve], target: float, column: str) -> Spread:
    return spread([at_target(run, target, run[column]) for run in runs])


def _ratio(runs: Sequence[Curve], sides: Sequence[str]) -> float:
    """Return dense over sent bytes of all runs and sides together; 0 where nothing was sent."""
    dense, sent = (sum(_total(runs, f"{kind}{side}_bytes") for side in sides) for kind in ("dense_", ""))
    return dense / sent if sent else 0.0


def _total(runs: Sequence[Curve], column: str) -> float:
    return sum(float(run[column][-1]) for run in runs)


def _without_first(table: Table) -> Table:
    """Return a table without its first column, which says the scenario where there is but one."""
    best = frozenset((y, x - 1) for y, x in table.best)
    return Table(table.caption, table.head[1:], tuple(row[1:] for row in table.rows), best)
