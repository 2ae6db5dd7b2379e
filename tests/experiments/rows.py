"""The rows of made-up cells: settings and curves that a test can calculate by hand."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.results import COLUMNS, MEASURED
from experiments.study import Study, read_study

SETTINGS: dict[str, Any] = {
    "method": "STC 1/100",
    "dataset": "mnist",
    "model": "logistic",
    "partition": "stc(classes=2)",
    "clients": 100,
    "participation": 0.1,
    "local_steps": 1,
    "batch_size": 20,
    "learning_rate": 0.04,
    "learning_rate_schedule": "constant",
    "momentum": 0.0,
    "optimizer": "sgd",
    "client_momentum": "reset",
    "training": "",
    "seed": 0,
    "strategy": "fedavg",
    "weighting": "examples",
    "uplink": "stc(density=0.01)",
    "downlink": "stc(density=0.01)",
}


def rows(count: int = 1, **values: Any) -> pd.DataFrame:
    """Return `count` rows with these values; all other measured columns are 0."""
    table = {"cell": "a", **SETTINGS, **dict.fromkeys(MEASURED, 0), **values}
    return pd.DataFrame({name: pd.array([table[name]] * count, dtype=dtype) for name, dtype in COLUMNS.items()})


def cell(accuracies: Sequence[float | None], *, up: int = 1000, down: int = 4000, **settings: Any) -> pd.DataFrame:
    """Return a row for each round from 0 on, with these accuracies; `up` and `down` are the bytes of one round.

    Plain Flower sends 100 kB a round each way, ten nodes take part, a node computes 0.5 s a round and the server 0.1 s.
    """
    given = SETTINGS | settings
    keys = ("method", "partition", "participation", "clients", "batch_size", "seed")
    table = rows(len(accuracies), cell="|".join(str(given[key]) for key in keys), **settings)
    number = pd.Series(range(len(accuracies)))
    accuracy = pd.Series(accuracies, dtype=float)
    return table.assign(
        round=number,
        iterations=number * given["local_steps"],
        accuracy=accuracy,
        loss=1 - accuracy,
        uplink_bytes=number * up,
        downlink_bytes=number * down,
        catch_up_bytes=number * down // 2,
        dense_uplink_bytes=number * 100_000,
        dense_downlink_bytes=number * 100_000,
        slowest_uplink_bytes=number * up // 10,
        slowest_downlink_bytes=number * down // 5,
        client_seconds=number * 0.5,
        server_seconds=number * 0.1,
    )


def dense(accuracies: Sequence[float | None], **settings: Any) -> pd.DataFrame:
    """Return the rows of a cell that sends dense updates, 100 kB a round each way."""
    given = {"method": "FedAvg n = 25", "local_steps": 25, "uplink": "dense()", "downlink": "dense()", **settings}
    return cell(accuracies, up=100_000, down=100_000, **given)


def study(*cells: pd.DataFrame, given: Sequence[float] = ()) -> Study:
    """Return the study of these cells, with these targets."""
    return read_study(pd.concat(cells), given)


def sweep() -> list[pd.DataFrame]:
    """Return the cells of two methods, at 1, 2 and 10 classes per client, with two seeds each."""
    cells = []
    for classes in (1, 2, 10):
        for seed in (0, 1):
            given: dict[str, Any] = {"partition": f"stc(classes={classes})", "seed": seed}
            cells.append(cell([0.1, 0.6, 0.8, 0.85 + 0.01 * seed], **given))
            cells.append(dense([0.1, 0.5 + 0.03 * classes, 0.55 + 0.03 * classes + 0.02 * seed], **given))
    return cells
