"""A small Flower app whose nodes learn random vectors, and sum their updates."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from fedcomp.flower import Checkpoint, CompressionMod
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.store import open_store
from fedcomp.sync import Subscriber

logging.getLogger("flwr").setLevel(logging.ERROR)
Arrays = dict[str, NDArray[Any]]
Messages = Iterable[Message]
Aggregate = tuple[ArrayRecord | None, MetricRecord | None]
"""The result of a strategy's `aggregate_train`."""
Start = Callable[[Context], Mapping[str, NDArray[Any]] | ArrayRecord]
"""Makes the model with which training starts."""


def model(sides: tuple[int, int] = (40, 25)) -> ArrayRecord:
    """Return a model of two floating tensors and a counter, as BatchNorm has one."""
    rng = np.random.default_rng(1)
    return ArrayRecord(
        {
            "layer.weight": Array(rng.standard_normal(sides, np.float32)),
            "layer.bias": Array(np.zeros(sides[1], np.float32)),
            "norm.num_batches_tracked": Array(np.array(3, np.int64)),
        }
    )


def checkpoint_at(path: Path | None) -> Checkpoint | None:
    """Return a checkpoint of every version at `path`; None without one."""
    return None if path is None else Checkpoint(path)


def arrays_of(record: ArrayRecord) -> Arrays:
    """Return numpy arrays by name."""
    return {name: array.numpy() for name, array in record.items()}


def floats(record: ArrayRecord) -> NDArray[np.float64]:
    """Return the floating tensors as one vector (an average makes a float of the counter as well)."""
    return _vector({name: record[name].numpy() for name in ("layer.weight", "layer.bias")})


def _vector(arrays: Arrays) -> NDArray[np.float64]:
    return np.concatenate([arrays[name].ravel() for name in ("layer.weight", "layer.bias")]).astype(np.float64)


def app(*, with_mod: bool = True, start: Start | None = None) -> ClientApp:
    """Return an app that adds seeded noise to the model; ``Context.state`` holds the sum of the updates."""
    client_app = ClientApp(mods=[CompressionMod(start)] if with_mod else [])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        rng = np.random.default_rng([context.node_id, server_round])
        trained: Arrays = {}
        for name, array in given.items():
            step = rng.standard_t(2, array.shape).astype(array.dtype) * 0.01 if array.dtype.kind == "f" else 1
            trained[name] = np.asarray(array + step)
        record = ArrayRecord({name: Array(array) for name, array in trained.items()})
        add_update(context, _vector(trained) - _vector(given))
        metrics = MetricRecord({"num-examples": 1 + context.node_id % 3, "loss": float(context.node_id)})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        total = float(floats(cast(ArrayRecord, message.content["arrays"])).sum())
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "sum": total})}), reply_to=message)

    return client_app


def training(
    change: Callable[[Arrays, Context, int], Mapping[str, Any]],
    weight: float = 1,
    start: Start | None = None,
    *,
    mod: bool = True,
) -> ClientApp:
    """Return an app whose nodes train to ``change(arrays, context, round)``, a model that the arrays may hold already.

    Without `mod` it is one for plain Flower.
    """
    client_app = ClientApp(mods=[CompressionMod(start)] if mod else [])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        trained = {name: Array(np.asarray(array)) for name, array in change(given, context, server_round).items()}
        metrics = MetricRecord({"num-examples": weight})
        return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    return client_app


def add_update(context: Context, update: NDArray[np.float64]) -> None:
    """Add to the sum of a node's updates, in its ``Context.state``."""
    if "updates" in context.state:
        update = update + sum_of_updates(context)
    context.state["updates"] = ArrayRecord({"sum": Array(update)})


def sum_of_updates(context: Context) -> NDArray[np.floating]:
    """Return the sum of all updates that a node's app has returned: what should arrive."""
    return context.state.array_records["updates"]["sum"].numpy()


def client_state_of(context: Context) -> ClientState:
    """Return the state of a node."""
    with open_store(context) as store:
        return store.load(0)


def state_of(context: Context) -> Subscriber:
    """Return the protocol state of a node."""
    return client_state_of(context).subscriber


class Recording(FedAvg):
    """FedAvg that keeps the replies of all rounds; it overrides `aggregate_train`, so it gets each reply."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.replies: list[Message] = []

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        self.replies += replies
        return super().aggregate_train(server_round, replies)


class Watching(FedAvg):
    """FedAvg that sums the updates that arrive, per node; it overrides `aggregate_train`, so it gets each reply."""

    acked: dict[int, NDArray[np.float64]]
    means: NDArray[np.float64] | float
    given: NDArray[np.float64]

    def __init__(self, **settings: float) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.acked, self.means = {}, 0.0

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        self.given = floats(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        for reply in replies:
            if reply.has_content():
                update = floats(cast(ArrayRecord, reply.content["arrays"])) - self.given
                self.acked[reply.metadata.src_node_id] = self.acked.get(reply.metadata.src_node_id, 0.0) + update
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            self.means = self.means + floats(arrays) - self.given
        return arrays, metrics
