"""A ClientApp that learns nothing, fast: what a round takes is then the way of the messages."""

from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod

app = ClientApp(mods=[CompressionMod()])  # plain messages pass it untouched


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the model with a sparse, heavy-tailed step added, as training makes one."""
    rng = np.random.default_rng(context.node_id)
    trained: dict[str, Array] = {}
    for name, array in cast(ArrayRecord, message.content["arrays"]).items():
        step = rng.standard_normal(array.shape, np.float32)
        trained[name] = Array(array.numpy() + np.float32(1e-3) * step**3)
    reply = RecordDict({"arrays": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": 1})})
    return Message(reply, reply_to=message)
