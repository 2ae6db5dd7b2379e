"""Logistic regression in scikit-learn on the digits, as in quickstart-sklearn: the arrays are a list."""

import warnings
from functools import cache
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from tests.adoption.quickstart import NODES, Quickstart

TRAINING = 1000


@cache
def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all images, scaled to 1, and their classes."""
    data: Any = load_digits(return_X_y=True)
    return data[0] / 16, data[1]


def with_parameters(arrays: list[NDArray[Any]]) -> LogisticRegression:
    """Return a model with these coefficients and intercepts."""
    model = LogisticRegression(max_iter=4, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = (array.copy() for array in arrays)
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = with_parameters(cast(ArrayRecord, msg.content["arrays"]).to_numpy_ndarrays())
    x, y = (array[int(context.node_config["partition-id"]) : TRAINING : NODES] for array in digits())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the few iterations do not converge
        model.fit(x, y)
    arrays = ArrayRecord([np.asarray(model.coef_), np.asarray(model.intercept_)])
    metrics = MetricRecord({"train_acc": float(model.score(x, y)), "num-examples": len(y)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


def score(arrays: ArrayRecord) -> float:
    """Return the accuracy on the digits that no node has."""
    x, y = digits()
    return float(with_parameters(arrays.to_numpy_ndarrays()).score(x[TRAINING:], y[TRAINING:]))


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord([np.zeros((10, 64)), np.zeros(10)]),
    train=train,
    score=score,
)
