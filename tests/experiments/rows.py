"""A cell's rows, made up: settings and curves that a test can reckon with by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.results import Row

ROW = Row(
    cell="",
    method="STC 1/100",
    dataset="mnist",
    model="logistic",
    partition="stc(classes=2)",
    clients=100,
    participation=0.1,
    local_steps=1,
    batch_size=20,
    learning_rate=0.04,
    momentum=0.0,
    seed=0,
    strategy="fedavg",
    uplink="stc(density=0.01)",
    downlink="stc(density=0.01)",
    round=0,
    iterations=0,
    accuracy=None,
    loss=None,
    uplink_bytes=0,
    downlink_bytes=0,
    catch_up_bytes=0,
    dense_uplink_bytes=0,
    dense_downlink_bytes=0,
    slowest_uplink_bytes=0,
    slowest_downlink_bytes=0,
    client_seconds=0.0,
    server_seconds=0.0,
)


def cell(accuracies: Sequence[float | None], *, up: int = 1000, down: int = 4000, **settings: Any) -> list[Row]:
    """Return a row a round from 0 on, with these accuracies; `up` and `down` are the bytes of one round.

    Plain Flower sends 100 kB a round each way, ten nodes take part, a node computes 0.5 s a round and the server 0.1 s.
    """
    first = replace(ROW, **settings)
    name = f"{first.method}|{first.partition}|{first.participation}|{first.batch_size}|{first.seed}"
    return [
        replace(
            first,
            cell=name,
            round=at,
            iterations=at * first.local_steps,
            accuracy=accuracy,
            loss=None if accuracy is None else 1 - accuracy,
            uplink_bytes=at * up,
            downlink_bytes=at * down,
            catch_up_bytes=at * down // 2,
            dense_uplink_bytes=at * 100_000,
            dense_downlink_bytes=at * 100_000,
            slowest_uplink_bytes=at * up // 10,
            slowest_downlink_bytes=at * down // 5,
            client_seconds=at * 0.5,
            server_seconds=at * 0.1,
        )
        for at, accuracy in enumerate(accuracies)
    ]


def dense(accuracies: Sequence[float | None], **settings: Any) -> list[Row]:
    """Return the rows of a cell that sends dense, 100 kB a round each way."""
    given: dict[str, Any] = {"method": "FedAvg n = 25", "local_steps": 25, "uplink": "dense()", "downlink": "dense()"}
    given.update(settings)
    return cell(accuracies, up=100_000, down=100_000, **given)


def study() -> list[Row]:
    """Return two methods, at 1, 2 and 10 classes per client, with two seeds each."""
    rows = []
    for classes in (1, 2, 10):
        for seed in (0, 1):
            at: dict[str, Any] = {"partition": f"stc(classes={classes})", "seed": seed}
            rows += cell([0.1, 0.6, 0.8, 0.85 + 0.01 * seed], **at)
            rows += dense([0.1, 0.5 + 0.03 * classes, 0.55 + 0.03 * classes + 0.02 * seed], **at)
    return rows
