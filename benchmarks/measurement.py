"""What the measurements share: times of two actions in turn, and tables."""

import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd


def paired_seconds(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> list[tuple[float, float]]:
    """Return the seconds of two actions that alternate: on a shared machine, only their ratio means something."""
    pairs: list[tuple[float, float]] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        first()
        middle = time.perf_counter()
        second()
        pairs.append((middle - begin, time.perf_counter() - middle))
    return pairs


def print_table(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table with a line for each row; the keys of the rows are its head."""
    print(f"{title}\n\n{pd.DataFrame(rows).to_string(index=False)}")
