"""The tables of a study about targets: the bytes and the time that each method needs to reach an accuracy."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmarks.netshape.profiles import PROFILES, Profile
from experiments.network import format_duration, network_seconds
from experiments.study import Study, reached, spread
from experiments.tables import Table, best_cells, grid_tables, megabytes, seeds
from server.progress import format_bytes

TARGET_KEYS = ["scenario", "target", "method"]


def byte_tables(study: Study, given: Sequence[float]) -> list[Table]:
    """Return the bytes that each method had sent when it first reached an accuracy, for each of the `given` ones."""
    tables = []
    for target, runs in reached(study, given).groupby("target", sort=False) if given else ():
        runs = runs.assign(both=runs["uplink_bytes"] + runs["downlink_bytes"])
        both = spread(runs, "both").assign(up=spread(runs, "uplink_bytes")["mean"])
        texts = both.apply(_sent, axis=1)
        caption = (
            f"MB until {100 * float(str(target)):g} % is first reached at an evaluation{{}}: up, and in brackets up and "
            "down; all nodes together, catch-up included in down. Mean over the seeds that reach it; in bold the fewest in "
            "brackets, of the methods that reach it with every seed."
        )
        tables += grid_tables(study, caption, "up (up and down)", texts, best_cells(both, megabytes))
    return tables


def _sent(value: pd.Series) -> str:
    """Return "0.471 (8.91)", in MB."""
    if not value["count"]:
        return "never"
    sent = f"{megabytes(value['up'])} ({megabytes(value['mean'])})"
    return sent if value["whole"] else f"{sent}, {seeds(value)}"


def target_table(study: Study, given: Sequence[float]) -> Table:
    """Return the bytes that each method had sent when it first reached a target accuracy, as in the STC paper."""
    runs = reached(study, given)
    runs = runs.assign(both=runs["uplink_bytes"] + runs["downlink_bytes"])
    both = spread(runs, "both", TARGET_KEYS)
    means = runs.groupby(TARGET_KEYS, observed=True, sort=False)[
        ["round", "iterations", "uplink_bytes", "downlink_bytes", "clients", "participation"]
    ].mean()
    rows = []
    for (key, mean), (_, total) in zip(means.iterrows(), both.iterrows(), strict=True):
        cells = ["-"] * 7
        if total["count"]:
            sides = [mean["uplink_bytes"], mean["downlink_bytes"]]
            messages = mean["round"] * mean["clients"] * mean["participation"]
            cells = [f"{mean[name]:.1f}".removesuffix(".0") for name in ("round", "iterations")]
            cells += [megabytes(size) for size in (*sides, sum(sides))]
            cells += [format_bytes(side / messages) if messages else "-" for side in sides]
        rows.append((*_target_key(key), *cells, seeds(total)))
    positions = {key: row for row, key in enumerate(both.index)}
    table = Table(
        "Bytes until the target accuracy is first reached at an evaluation; - if it never is. Mean over the seeds that reach "
        "it. Up, down and both: all nodes together, catch-up included in down; in bold the fewest of the methods that reach "
        "it with every seed. A message: divided by rounds and by the clients that train in a round.",
        (
            "setting", "target", "method", "rounds", "iterations", "up (MB)", "down (MB)", "both (MB)", "up a message",
            "down a message", "reached by",
        ),
        tuple(rows),
        frozenset((positions[key], 7) for key in best_cells(both, megabytes)),
    )  # fmt: skip
    return table if study.axes else table.without_first_column()


def time_table(
    study: Study, given: Sequence[float], slowdown: float = 1.0, profiles: Sequence[Profile] = PROFILES
) -> Table:
    """Return the time until each method first reaches a target accuracy, with a column for each network."""
    runs = reached(study, given)
    times = {profile.name: network_seconds(runs, profile, slowdown) for profile in profiles}
    spreads = [spread(runs.assign(time=seconds), "time", TARGET_KEYS) for seconds in times.values()]
    rows = []
    for key in spreads[0].index:
        values = [one.loc[key] for one in spreads]
        texts = [format_duration(value["mean"]) if value["count"] else "-" for value in values]
        rows.append((*_target_key(key), *texts, seeds(values[0])))
    table = Table(
        "Time until the target accuracy is first reached, over each network; - if it never is. Mean over the seeds that "
        "reach it.",
        ("setting", "target", "method", *times, "reached by"),
        tuple(rows),
    )
    return table if study.axes else table.without_first_column()


def _target_key(key: Any) -> tuple[str, str, str]:
    scenario, target, method = key  # the index of a groupby has no type
    return str(scenario), f"{100 * target:g} %", str(method)


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
