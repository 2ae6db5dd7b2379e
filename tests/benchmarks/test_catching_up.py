"""Each way of serving nodes that were away takes at most the bytes of the one before, and the last one those that were sent."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import fedcomp
from benchmarks.catching_up import BALANCE, BALANCED, SENT, STC, WAYS, measure, older_size, table, without_gamma_code
from deploy.run_config import ROOT, app_of
from fedcomp.sync import Publisher, start_replica
from fedcomp.wire import Frame, layout_of

NODES, ROUNDS = 20, 8


@pytest.mark.usefixtures("undrawn")
def test_each_way_takes_at_most_the_bytes_of_the_one_before_and_has_a_row_in_the_table() -> None:
    small = {
        "model": "mlp",
        "partition": "stc(classes=2)",
        "batch-size": 20,
        "local-steps": 1,
        "device": "cpu",
        "seed": 0,
    }
    config = {**app_of(ROOT)["config"], **small}
    runs = pd.DataFrame([*measure(NODES, STC, ROUNDS, config), *measure(NODES, BALANCED, ROUNDS, config)])
    rows = runs.set_index("way")
    down = [int(rows.loc[way, "down"]) for way in WAYS]
    assert down == sorted(down, reverse=True)
    assert len({*down}) == len(WAYS), "each way saves something in a run in which nodes are away"
    assert down[-1] <= rows.loc[SENT, "down"] < 1.01 * down[-1]
    assert rows.loc[WAYS[-1], "up"] == rows.loc[SENT, "up"] < rows.loc[WAYS[0], "up"]
    assert rows.loc[WAYS[0], "down"] < rows.loc[SENT, "plain_down"]
    printed = table(runs)
    assert [row["way"] for row in printed] == [*WAYS, BALANCE]
    first = rows.loc[WAYS[0]]
    both = (first["plain_up"] + first["plain_down"]) / (first["up"] + first["down"])
    assert printed[0]["25.00% of nodes"] == f"{first['plain_down'] / first['down']:.3g} ({both:.3g})"


def test_a_frame_counted_without_gamma_code_has_the_size_that_it_has_where_there_is_none() -> None:
    arrays = {"w": np.zeros(20_000, np.float32)}
    rng = np.random.default_rng(0)
    change = (rng.standard_normal(20_000) * np.repeat(rng.pareto(1, 200), 100)).astype(np.float32)  # in clusters
    layout, frames = layout_of(arrays), list[Frame]()
    for block in (without_gamma_code(), nullcontext()):
        publisher = Publisher.begin(start_replica(layout, arrays))
        with block:
            publisher.publish(change.copy(), b"", fedcomp.parse(STC), 1)
        frames += publisher.history.frames()
    older, today = frames
    assert today.size < older.size == older_size(today, layout) == older_size(older, layout)
