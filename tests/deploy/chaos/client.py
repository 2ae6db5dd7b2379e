"""The project's ClientApp, which also records when it starts to train and which update the uplink has to send."""

import os
import time
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from clients.app import evaluate, first_model, report_partition, train
from fedcomp.flower import CompressionMod, to_record

OTHER_START = 3


def book(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Run between the mod and the app, where models are plain arrays."""
    if message.metadata.message_type != "train":
        return call_next(message, context)
    folder = Path(os.environ["CHAOS_BOOK"]) / f"node-{context.node_config['partition-id']}"
    folder.mkdir(parents=True, exist_ok=True)
    server_round = cast(ConfigRecord, message.content["config"])["server-round"]
    given = {name: array.numpy() for name, array in cast(ArrayRecord, message.content["arrays"]).items()}
    (folder / f"{server_round!s}.begun").touch()
    reply = call_next(message, context)
    trained = cast(ArrayRecord, reply.content["arrays"])
    updates = [trained[name].numpy().astype(np.float64) - array for name, array in given.items()]
    np.save(folder / f"{server_round!s}-{time.time_ns()}.npy", np.concatenate([array.ravel() for array in updates]))
    return reply


def start(context: Context) -> ArrayRecord:
    """Return the first model; that of node `OTHER_START` differs from the server's in one bit."""
    record = first_model(context)
    if context.node_config["partition-id"] != OTHER_START:
        return record
    arrays = {name: array.numpy() for name, array in record.items()}
    next(iter(arrays.values())).view(np.uint32).flat[17] ^= 1
    return to_record(arrays)


app = ClientApp(mods=[CompressionMod(start), book])
app.train()(train)
app.evaluate()(evaluate)
app.query("partition")(report_partition)
