"""An app whose nodes assign ``Context.state`` anew in each training, as Flower allows, and keep no files."""

import json
import os
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod

NODES, ROUNDS = 2, 5


def without_folder(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as a node without ``state-dir``."""
    context.node_config.pop("state-dir", None)
    return call_next(message, context)


client_app = ClientApp(mods=[without_folder, CompressionMod()])


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Add noise of the node and the round, which its own state counts."""
    own = context.state.config_records.get("own", ConfigRecord({"trainings": 0}))
    context.state = RecordDict({"own": ConfigRecord({"trainings": int(str(own["trainings"])) + 1})})
    rng = np.random.default_rng([int(context.node_config["partition-id"]), int(str(own["trainings"]))])
    weights = message.content.array_records["arrays"]["w"].numpy()
    trained = Array(weights + rng.standard_normal(weights.shape, np.float32))
    content = RecordDict({"arrays": ArrayRecord({"w": trained}), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


def trained(grid: Grid) -> CompressedStrategy:
    """Return the strategy after all rounds."""
    topk = fedcomp.topk(density=0.25)
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=NODES, min_train_nodes=NODES), uplink=topk, downlink=topk
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(400, np.float32))}), num_rounds=ROUNDS)
    return strategy


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write what the test compares."""
    strategy = trained(grid)
    found = {"refused": strategy.ledger.refused, "w": sorted(strategy.arrays["w"].numpy().tolist())}
    Path(os.environ["ASSIGNING_BOOK"]).write_text(json.dumps(found))
