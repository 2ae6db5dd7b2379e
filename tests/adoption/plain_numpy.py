"""Linear regression by gradient steps in numpy, as in quickstart-numpy: a model of a few numbers."""

from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from tests.adoption.quickstart import Quickstart

WEIGHTS = np.array([2.0, -1.0, 0.5, 3.0])


def samples(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 100 inputs and their noisy outputs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, 4))
    return x, x @ WEIGHTS + rng.standard_normal(100)


def train(msg: Message, context: Context) -> Message:
    """Take ten gradient steps on local data."""
    (weights,) = cast(ArrayRecord, msg.content["arrays"]).to_numpy_ndarrays()
    x, y = samples(int(context.node_config["partition-id"]))
    for _ in range(10):
        weights = weights - 0.05 * 2 * x.T @ (x @ weights - y) / len(y)
    metrics = MetricRecord({"loss": float(np.mean((x @ weights - y) ** 2)), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics}), reply_to=msg)


def score(arrays: ArrayRecord) -> float:
    """Return the squared error on data that no node has."""
    x, y = samples(99)
    return float(np.mean((x @ arrays.to_numpy_ndarrays()[0] - y) ** 2))


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord([np.zeros(4)]),
    train=train,
    score=score,
    is_loss=True,
    min_ratio=1.0,
)
