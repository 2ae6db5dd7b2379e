"""A partition is shown on a terminal as numbers and a map."""

import io

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.partition.text_map import numbers, text_map
from fedcomp.data import Spread

SPREAD = Spread(np.array([[4, 0], [2, 6], [8, 8], [1, 99]]), np.array([20, 120]))


def shown(table: Table) -> str:
    """Return what a wide terminal shows of a table."""
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_map_has_a_row_for_each_class_a_column_for_each_client_and_sizes_above() -> None:
    lines = text_map("half", SPREAD, ("cat", "dog"), width=80).plain.splitlines()
    assert lines == [
        "half",
        " size ▁▁▂█",  # 4, 8, 16 and 100 of 100, in eighths
        "  cat █░▒░",  # all, 1/4, 1/2, 1/100
        "  dog  ▓▒█",  # none, 3/4, 1/2, 99/100
    ]


def test_clients_beyond_the_width_are_left_out_and_the_title_says_so() -> None:
    lines = text_map("half", SPREAD, ("cat", "dog"), width=8).plain.splitlines()
    assert lines[0] == "half, the first 2 of 4 clients"
    assert lines[1:] == [" size ▁▁", "  cat █░", "  dog  ▓"]


def test_the_table_has_a_row_for_each_partition() -> None:
    table = shown(numbers({"half": SPREAD, "again": SPREAD}, "a title"))
    rows = [line.split() for line in table.splitlines() if line.strip().startswith(("half", "again"))]
    assert [row[0] for row in rows] == ["half", "again"]
    # Classes 1, 2, 2, 2; sizes 4, 8, 16, 100: median 12; Gini (-3*4 - 8 + 16 + 300) / (4 * 128); 12 of 140 unused.
    assert " ".join(rows[0][3:]) == "1, 1.8, 2 4, 12, 100 0.578 12"
