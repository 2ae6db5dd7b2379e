"""The network, its data and its training."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord
from sklearn.datasets import load_digits

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""
Params = dict[str, jax.Array]


@cache
def digits():
    """Return all images, (n, 64), and their classes."""
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32), y


def load_data(part: slice):
    """Return a part of the digits."""
    x, y = digits()
    return x[part], y[part]


def first_params() -> Params:
    """Return random weights and zeros."""
    one, two = jax.random.split(jax.random.key(0))
    return {
        "w1": jax.random.normal(one, (64, 128)) / 8,
        "b1": jnp.zeros(128),
        "w2": jax.random.normal(two, (128, 10)) / 11,
        "b2": jnp.zeros(10),
    }


def to_record(params: Params) -> ArrayRecord:
    """Return the parameters as a record of Flower."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in params.items()})


def to_params(record: ArrayRecord) -> Params:
    """Return the parameters in a record of Flower."""
    return {name: jnp.asarray(array.numpy()) for name, array in record.items()}


def scores(params: Params, x):
    """Return the scores of the classes, (n, 10)."""
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params: Params, x, y):
    """Return the mean cross-entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores(params, x)), y[:, None], axis=1).mean()


@jax.jit
def step(params: Params, x, y, lr: float):
    """Return the parameters after a step of gradient descent, and the loss before it."""
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda param, slope: param - lr * slope, params, gradient), value


def train(params: Params, x, y, epochs: int, lr: float, batch_size: int):
    """Return the trained parameters and the last loss."""
    value = 0.0
    for _ in range(epochs):
        order = np.random.permutation(len(y))
        for batch in np.split(order[: len(y) // batch_size * batch_size], len(y) // batch_size):
            params, value = step(params, x[batch], y[batch], lr)
    return params, float(value)


def test(params: Params, x, y) -> float:
    """Return the accuracy."""
    return float((scores(params, x).argmax(1) == y).mean())
