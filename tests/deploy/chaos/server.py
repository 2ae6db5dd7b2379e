"""The project's ServerApp, with a strategy that also records the updates of each round."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from server import strategies
from server.app import app

__all__ = ["Watching", "app"]


def floats(record: ArrayRecord) -> NDArray[np.float64]:
    """Return all entries of a model as one vector."""
    return np.concatenate([array.numpy().astype(np.float64).ravel() for array in record.values()])


class Watching(FedAvg):
    """FedAvg, and a file for each round with the update of each node; a round that is repeated replaces it."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the initial model of the round."""
        self._given = floats(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write the updates of the nodes."""
        replies = list(replies)
        acked = {
            str(reply.metadata.src_node_id): floats(cast(ArrayRecord, reply.content["arrays"])) - self._given
            for reply in replies
            if reply.has_content()
        }
        folder = Path(os.environ["CHAOS_BOOK"])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"taken-{server_round}.npz", **acked)  # type: ignore[arg-type]
        return super().aggregate_train(server_round, replies)


if "CHAOS_BOOK" in os.environ:  # only in the federation of the chaos test
    cast(dict[str, Any], strategies.STRATEGIES)["watching"] = (Watching, ())
