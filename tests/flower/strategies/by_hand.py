"""One round of a strategy by hand: what is published, what each node sends back, what the server makes of it."""

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
    """Return a grid whose nodes are asked for their ids and nothing else."""
    return LocalGrid(ClientApp(), num_nodes)


def record(tensors: Tensors) -> ArrayRecord:
    """Return tensors as Flower sends them; numbers without a dtype are float32."""
    arrays = {
        name: value if isinstance(value, np.ndarray | np.generic) else np.asarray(value, np.float32)
        for name, value in tensors.items()
    }
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def one_round(
    strategy: Strategy,
    published: ArrayRecord,
    sent: Iterable[Tensors | None],
    *,
    nodes: LocalGrid | None = None,
    weights: Iterable[float] = (),
    server_round: int = 1,
) -> ArrayRecord | None:
    """Return the next model after each node sent a model, or, for None, an error; all weigh the same unless said."""
    sent = list(sent)
    nodes = nodes or grid(max(len(sent), 2))
    asked = list(strategy.configure_train(server_round, published, ConfigRecord(), nodes))
    asked.sort(key=lambda message: message.metadata.dst_node_id)
    replies = []
    given = list(weights) or [1.0] * len(sent)
    for message, tensors, weight in zip(asked, sent, given, strict=False):
        if tensors is None:
            replies.append(Message(Error(0, "it broke"), reply_to=message))
            continue
        metrics = MetricRecord({"num-examples": weight})
        replies.append(Message(RecordDict({"arrays": record(tensors), "metrics": metrics}), reply_to=message))
    model, _ = strategy.aggregate_train(server_round, replies)
    return model


def values(model: ArrayRecord | None, name: str = "weight") -> list[float]:
    """Return the entries of a tensor of a model that there is."""
    assert model is not None
    return cast(list[float], model[name].numpy().ravel().tolist())
