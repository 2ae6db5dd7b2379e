"""The tables of a study by method and setting: accuracy, bytes and time to a target, compression ratio, catch-up."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.netshape.profiles import PROFILES
from experiments.network import format_duration
from experiments.study import Measure, Study, spread
from experiments.table import Table
from fedcomp.core import format_bytes

TARGET_KEYS = ("scenario", "target", "method")


def percent(value: pd.Series) -> str:
    """Return a row of `spread` as "85.8 ± 0.2", in percent: mean and standard deviation over seeds; "-" without any.

    If not all seeds of the scenario have a number, the text says how many have.
    """
    if not value["count"]:
        return "-"
    text = f"{100 * value['mean']:.1f}" + (f" ± {100 * value['std']:.1f}" if value["count"] > 1 else "")
    return text if value["whole"] else f"{text} ({seeds(value)})"


def seeds(value: pd.Series) -> str:
    """Return how many seeds of a row of `spread` have a number, as "2 of 3 seeds"."""
    return f"{value['count']:.0f} of {value['of']:.0f} seed{'s' if value['of'] > 1 else ''}"


def megabytes(size: float) -> str:
    """Return a size in MB (10^6 bytes) with three digits, as 0.524 or 1,570."""
    value = size / 1e6
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}".rstrip(".")


def dense_ratio(runs: pd.DataFrame, *sides: str) -> float:
    """Return the bytes that plain Flower would have sent over those sent, over all `runs`; 0 if nothing was sent.

    `sides` are "uplink" and "downlink".
    """
    dense, sent = (sum(runs[f"{kind}{side}_bytes"].sum() for side in sides) for kind in ("dense_", ""))
    return float(dense / sent) if sent else 0.0


def times(ratio: float) -> str:
    """Return a ratio with three digits, or as a whole number, as 2.02 or 1,214."""
    return f"{ratio:,.0f}" if ratio >= 999.5 else f"{ratio:.3g}"


def best_methods(values: pd.DataFrame, show: Callable[[float], str], *, highest: bool = False) -> dict[Any, list[str]]:
    """Return the methods with the lowest or highest mean of each group of a `spread`, by the rest of its key.

    Methods that show the same text tie. A method counts only if every seed has a number.
    """
    means = values.loc[values["whole"], "mean"]
    rest = list(range(values.index.nlevels - 1))
    best = means.groupby(level=rest, observed=True, sort=False).transform("max" if highest else "min")
    found: dict[Any, list[str]] = {}
    for *group, method in means.index[means.map(show) == best.map(show)]:
        found.setdefault(group[0] if len(group) == 1 else tuple(group), []).append(str(method))
    return found


def best_ends(ends: pd.DataFrame) -> dict[Any, list[str]]:
    """Return the methods with the highest mean accuracy, as shown, by scenario."""
    return best_methods(ends, lambda mean: f"{100 * mean:.1f}", highest=True)


def by_setting(study: Study, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first column is the setting, which a study without axes does not show."""
    first = 0 if study.axes else 1
    return Table(caption, tuple(head[first:]), tuple(tuple(row[first:]) for row in rows))


def methods_table(study: Study) -> Table:
    """Return each method with its settings, and its compression ratios."""
    always = ("uplink", "downlink", "strategy", "local_steps", "learning_rate", "momentum")
    sometimes = ("learning_rate_schedule", "optimizer", "client_momentum", "training")
    columns = (*always, *(column for column in sometimes if study.runs[column].nunique() > 1))
    rows = []
    for method, runs in study.runs.groupby("method", observed=True):
        settings = [
            ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in runs[column].unique())
            for column in columns
        ]
        ratios = [dense_ratio(runs, side) for side in ("uplink", "downlink")]
        rows.append((str(method), *settings, *(f"{ratio:.1f}" if ratio else "-" for ratio in ratios)))
    return Table(
        "Ratio: the bytes that plain Flower would have sent over those sent, both measured, over all cells of the method; "
        "down includes the catch-up of nodes that were absent.",
        ("method", *(column.replace("_", " ") for column in columns), "ratio up", "ratio down"),
        tuple(rows),
    )


def accuracy_tables(study: Study, measure: Measure) -> list[Table]:
    """Return the accuracy of each method by setting; the best means of each column are marked.

    A method without an accuracy for each seed of the setting is not marked.
    """
    which = "at the last evaluation" if measure == "final" else "best of all evaluations"
    ends = spread(study.runs, measure)
    caption = f"Test accuracy in percent, {which}{{}}: mean ± standard deviation over seeds."
    return _grid_tables(study, caption, "accuracy", ends.apply(percent, axis=1), best_ends(ends))


def ratio_tables(study: Study) -> list[Table]:
    """Return how many times fewer bytes each method sent than plain Flower would have."""
    groups = study.runs.groupby(["scenario", "method"], observed=True)
    both = groups.apply(lambda runs: dense_ratio(runs, "uplink", "downlink"))
    up = groups.apply(lambda runs: dense_ratio(runs, "uplink"))
    texts = {key: f"{times(ratio)} ({times(both[key])})" if ratio else "-" for key, ratio in up.items()}
    caption = (
        "How many times fewer bytes than plain Flower would have sent in the same rounds, over complete runs{}: up, and in "
        "brackets up and down, catch-up included in down. All seeds together."
    )
    return _grid_tables(study, caption, "up (up and down)", texts)


FRAMES = ("key_bytes", "jump_bytes", "delta_bytes", "replay_bytes")
"""The columns of the downlink's frames by their kinds."""


def catch_up_tables(study: Study) -> list[Table]:
    """Return the share of each method's downlink bytes that is catch-up, and the shares of its frames by their kinds."""
    groups = study.runs.groupby(["scenario", "method"], observed=True)
    sums = groups[["catch_up_bytes", "downlink_bytes", *FRAMES]].sum()
    texts: dict[Any, str] = {}
    for key, late, down, *frames in sums.itertuples():
        shares = f" ({', '.join(f'{100 * size / down:.0f}' for size in frames)})" if any(frames) else ""
        texts[key] = f"{100 * late / down:.1f} %{shares}" if down else "-"
    caption = (
        "The share of the downlink bytes that is catch-up, over complete runs{}; in brackets, in percent, key frames, jumps, "
        "single deltas and several deltas; heads of messages are the rest, and in older results all. All seeds together."
    )
    return _grid_tables(study, caption, "catch-up (frames by kind)", texts)


def byte_tables(study: Study) -> list[Table]:
    """Return the bytes that each method had sent when it first reached an accuracy, for each of the given targets."""

    def sent(value: pd.Series) -> str:
        if not value["count"]:
            return "never"
        text = f"{megabytes(value['up'])} ({megabytes(value['mean'])})"
        return text if value["whole"] else f"{text}, {seeds(value)}"

    tables = []
    for target in study.given:
        runs = study.reached[study.reached["target"] == target]
        both = spread(runs, "traffic_bytes").assign(up=spread(runs, "uplink_bytes")["mean"])
        caption = (
            f"MB until {100 * target:g} % is first reached at an evaluation{{}}: up, and in brackets up and "
            "down; all nodes together, catch-up included in down. Mean over the seeds that reach it; in bold the fewest in "
            "brackets, of the methods that reach it with every seed."
        )
        best = best_methods(both, megabytes)
        tables += _grid_tables(study, caption, "up (up and down)", both.apply(sent, axis=1), best)
    return tables


def target_table(study: Study) -> Table:
    """Return the bytes that each method had sent when it first reached a target accuracy, as in the STC paper."""
    both = spread(study.reached, "traffic_bytes", TARGET_KEYS)
    groups = study.reached.groupby(list(TARGET_KEYS), observed=True, sort=False)
    means = groups[["round", "iterations", "uplink_bytes", "downlink_bytes", "clients", "participation"]].mean()
    best = best_methods(both, megabytes)
    rows = []
    for key, value in both.join(means).iterrows():
        scenario, target, method = _parts(key)
        cells = ["-"] * 7
        if value["count"]:
            sides = [value["uplink_bytes"], value["downlink_bytes"]]
            messages = value["round"] * value["clients"] * value["participation"]
            cells = [f"{value[name]:.1f}".removesuffix(".0") for name in ("round", "iterations")]
            cells += [megabytes(size) for size in (*sides, sum(sides))]
            cells += [format_bytes(side / messages) if messages else "-" for side in sides]
        rows.append((scenario, f"{100 * target:g} %", method, *cells, seeds(value)))
    heads = "setting, target, method, rounds, iterations, up (MB), down (MB), both (MB), up a message, down a message"
    table = by_setting(
        study,
        "Bytes until the target accuracy is first reached at an evaluation; - if it never is. Mean over the seeds that reach "
        "it. Up, down and both: all nodes together, catch-up included in down; in bold the fewest of the methods that reach "
        "it with every seed. A message: divided by rounds and by the clients that train in a round.",
        (*heads.split(", "), "reached by"),
        rows,
    )
    column = table.head.index("both (MB)")
    wins = ((row, *_parts(key)) for row, key in enumerate(both.index))
    marked = {(row, column) for row, scenario, target, method in wins if method in best.get((scenario, target), ())}
    return Table(table.caption, table.head, table.rows, marked)


def time_table(study: Study) -> Table:
    """Return the time until each method first reaches a target accuracy, with a column for each network."""
    networks = [profile.name for profile in PROFILES]
    spreads = [spread(study.reached, name, TARGET_KEYS) for name in networks]
    rows = []
    for key in spreads[0].index:
        scenario, target, method = _parts(key)
        values = [one.loc[key] for one in spreads]
        texts = [format_duration(value["mean"]) if value["count"] else "-" for value in values]
        rows.append((scenario, f"{100 * target:g} %", method, *texts, seeds(values[0])))
    return by_setting(
        study,
        "Time until the target accuracy is first reached, over each network; - if it never is. Mean over the seeds that "
        "reach it.",
        ("setting", "target", "method", *networks, "reached by"),
        rows,
    )


def network_table() -> Table:
    """Return the networks, each with its source."""
    return Table(
        "The networks. A Mbit is 1,000,000 bits.",
        ("network", "up (Mbit/s)", "down (Mbit/s)", "round trip (ms)", "source"),
        tuple(
            (one.name, f"{one.up_mbit_s:g}", f"{one.down_mbit_s:g}", f"{one.round_trip_ms:g}", one.source)
            for one in PROFILES
        ),
    )


def _parts(key: Any) -> tuple[str, float, str]:
    scenario, target, method = key  # the index of a groupby has no type
    return str(scenario), target, str(method)


def _grid_tables(
    study: Study,
    caption: str,
    only: str,
    texts: "Mapping[tuple[str, str], str] | pd.Series[str]",
    best: Mapping[str, Sequence[str]] | None = None,
) -> list[Table]:
    """Return tables with a row for each method and a column for each value of the longest axis.

    Each combination of values of the other axes has its own table. The keys of `texts` are (scenario, method); `best` are
    the methods to mark in each scenario; `caption` has a place for what the table is about; `only` heads the column of a
    study without axes.
    """
    axis = max(study.axes, key=lambda one: len(one.values), default=None)
    tables = []
    for common, scenarios in (study.split(axis) if axis else {"": list(study.scenarios)}).items():
        heads, about = [only], ""
        if axis:
            heads = [axis.format(study.scenarios[scenario][study.axes.index(axis)]) for scenario in scenarios]
            about = f", by {axis.name}" + (f" ({common})" if common else "")
        rows = tuple(
            (method, *(texts.get((scenario, method), "") for scenario in scenarios)) for method in study.methods
        )
        marked = {
            (study.methods.index(method), x)
            for x, scenario in enumerate(scenarios, start=1)
            for method in (best or {}).get(scenario, ())
        }
        tables.append(Table(caption.format(about), ("method", *heads), rows, marked))
    return tables
