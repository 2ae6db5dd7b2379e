"""Trains with the plug-in's method in both directions, which it knows by its text alone; prints what was sent."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid

app = ClientApp(mods=[CompressionMod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Move the model a tenth of the way to the vector of ones."""
    arrays = message.content.array_records["arrays"]
    model = arrays["weight"].numpy()
    record = ArrayRecord({"weight": Array(model + np.float32(0.1) * (1 - model))})
    return Message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


if __name__ == "__main__":
    method = fedcomp.parse("int8")
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=method, downlink=method)
    result = strategy.start(
        LocalGrid(app, 3), ArrayRecord({"weight": Array(np.zeros(1000, np.float32))}), num_rounds=30
    )
    ledger = strategy.ledger
    print(
        f"int8 is the last method: {list(fedcomp.METHODS)[-1] == 'int8'}",
        f"refused: {ledger.refused}",
        f"compressed: {ledger.dense_uplink_bytes > 3 * ledger.uplink_bytes}",
        f"learned: {np.abs(1 - result.arrays['weight'].numpy()).max() < 0.1}",
        sep="\n",
    )
