"""Softmax regression in JAX, as in quickstart-jax: a dictionary of arrays."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import held_out, own


def libraries() -> tuple[Any, Any]:
    """Return jax and jax.numpy; skip the test if JAX is not installed."""
    jax = pytest.importorskip("jax", reason="JAX is not installed; fedcomp does not depend on it")
    return jax, jax.numpy


def logits(params: Mapping[str, Any], x: Any) -> Any:
    """Return the scores of the classes."""
    return x @ params["w"] + params["b"]


@cache
def step() -> Any:
    """Return the compiled function that gives the loss and its gradient."""
    jax, jnp = libraries()

    def loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(logits(params, x))[jnp.arange(len(y)), y].mean()

    return jax.jit(jax.value_and_grad(loss))


def train(msg: Message, context: Context) -> Message:
    """Take a few gradient steps on local data."""
    _, jnp = libraries()
    arrays = cast(ArrayRecord, msg.content["arrays"])
    params = {name: jnp.asarray(array.numpy()) for name, array in arrays.items()}
    x, y = (jnp.asarray(each.numpy()) for each in own(context))
    value = 0.0
    for _ in range(3):
        value, gradient = step()(params, x.reshape(len(x), -1), y)
        params = {name: params[name] - 0.02 * gradient[name] for name in params}
    trained = ArrayRecord({name: Array(np.asarray(param)) for name, param in params.items()})
    metrics = MetricRecord({"loss": float(value), "num-examples": len(y)})
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=msg)


def initial() -> ArrayRecord:
    """Return zeros."""
    libraries()
    return ArrayRecord({"w": Array(np.zeros((64, 10), np.float32)), "b": Array(np.zeros(10, np.float32))})


def score(arrays: ArrayRecord) -> float:
    """Return the accuracy on samples that no node has."""
    x, y = (each.numpy() for each in held_out())
    params = {name: array.numpy() for name, array in arrays.items()}
    return float((logits(params, x.reshape(len(x), -1)).argmax(1) == y).mean())


QUICKSTART = Quickstart(initial=initial, train=train, score=score)
