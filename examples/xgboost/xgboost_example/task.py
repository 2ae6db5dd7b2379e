"""The data, and models as bytes."""

from functools import cache

import numpy as np
import xgboost
from flwr.app import ArrayRecord
from sklearn.datasets import load_breast_cancer

TRAINING = 350
"""The samples that the nodes share; the remaining 219 are the server's."""


@cache
def samples():
    """Return measurements of tumours, (n, 30), and whether each is benign."""
    return load_breast_cancer(return_X_y=True)


def load_data(part: slice) -> xgboost.DMatrix:
    """Return a part of the samples."""
    x, y = samples()
    return xgboost.DMatrix(x[part], label=y[part])


def parameters(learning_rate: float, max_depth: int) -> dict:
    """Return the parameters of training: two classes, as Flower's bagging supports, and one thread."""
    return {"objective": "binary:logistic", "eta": learning_rate, "max_depth": max_depth, "nthread": 1}


def to_record(model: bytes) -> ArrayRecord:
    """Return a record with the bytes of a model; without any for the first one."""
    return ArrayRecord([np.frombuffer(model, np.uint8)])


def to_bytes(record: ArrayRecord) -> bytes:
    """Return the bytes of the model in a record."""
    return record.to_numpy_ndarrays()[0].tobytes()


def load_model(model: bytes) -> xgboost.Booster:
    """Return the trees of a model."""
    return xgboost.Booster(model_file=bytearray(model))
