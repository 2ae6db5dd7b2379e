"""The ClientApp: a node trains on its own digits."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from jax_example.task import TRAINING, load_data, to_params, to_record
from jax_example.task import train as train_fn

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    x, y = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    config = context.run_config
    settings = config["local-epochs"], config["learning-rate"], config["batch-size"]
    params, loss = train_fn(to_params(msg.content["arrays"]), x, y, *settings)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": to_record(params), "metrics": metrics}), reply_to=msg)
