"""The tables of a study: its methods, and what it took to get to a target.  Those of methods by settings: `grids`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.netshape.profiles import PROFILES, Profile
from experiments.curves import Curve, Study
from experiments.network import format_duration, seconds
from experiments.outcome import Spread, at_target, dense_ratio, spread, spread_at, targets, winners
from experiments.words import megabytes, seeds
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


def methods_table(study: Study) -> Table:
    """Return each method with its settings, and what it sent beside plain Flower."""
    columns = ("uplink", "downlink", "strategy", "local_steps", "learning_rate", "momentum")
    rows = []
    for method in study.methods:
        runs = [curve for curve in study.curves if curve.method == method]
        up, down = (dense_ratio(runs, [side]) for side in ("uplink", "downlink"))
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
                up, down = (spread_at(runs, target, side) for side in ("uplink_bytes", "downlink_bytes"))
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
    rounds, iterations = (spread_at(runs, target, column) for column in ("round", "iterations"))
    messages = rounds.mean * float(runs[0].settings["clients"]) * float(runs[0].settings["participation"])
    each = [format_bytes(side.mean / messages) if messages else "-" for side in (up, down)]
    sums = (megabytes(size) for size in (up.mean, down.mean, up.mean + down.mean))
    counts = (f"{count.mean:.1f}".removesuffix(".0") for count in (rounds, iterations))
    return (*counts, *sums, *each)


def _without_first(table: Table) -> Table:
    """Return a table without its first column, which says the scenario where there is but one."""
    best = frozenset((y, x - 1) for y, x in table.best)
    return Table(table.caption, table.head[1:], tuple(row[1:] for row in table.rows), best)
