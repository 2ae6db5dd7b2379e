"""One round of a strategy by hand: a published model and one reply for each node give the next model."""

from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy
from numpy.typing import ArrayLike

from fedcomp.flower import LocalGrid

Tensors = Mapping[str, ArrayLike]


def grid(num_nodes: int) -> LocalGrid:
    """Return a grid whose nodes never get a message."""
    return LocalGrid(ClientApp(), num_nodes)


def record(tensors: Tensors) -> ArrayRecord:
    """Return tensors as a record of Flower; numbers without a dtype become float32."""
    arrays = {
        name: value if isinstance(value, np.ndarray | np.generic) else np.asarray(value, np.float32)
        for name, value in tensors.items()
    }
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def one_round(
    strategy: Strategy,
    published: ArrayRecord,
    replies: Iterable[Tensors | None],
    *,
    nodes: LocalGrid | None = None,
    weights: Iterable[float] = (),
    server_round: int = 1,
) -> ArrayRecord | None:
    """Return the next model after each node replied with a model, or, for None, with an error; weights default to 1."""
    replies = list(replies)
    nodes = nodes or grid(max(len(replies), 2))
    requests = list(strategy.configure_train(server_round, published, ConfigRecord(), nodes))
    requests.sort(key=lambda message: message.metadata.dst_node_id)
    messages = []
    for request, tensors, weight in zip(requests, replies, list(weights) or [1.0] * len(replies), strict=False):
        if tensors is None:
            messages.append(Message(Error(0, "it broke"), reply_to=request))
            continue
        metrics = MetricRecord({"num-examples": weight})
        messages.append(Message(RecordDict({"arrays": record(tensors), "metrics": metrics}), reply_to=request))
    model, _ = strategy.aggregate_train(server_round, messages)
    return model


def values(model: ArrayRecord | None, name: str = "weight") -> list[float]:
    """Return the entries of one tensor of a model."""
    assert model is not None
    return cast(list[float], model[name].numpy().ravel().tolist())
