"""The ClientApp: a node trains on its own digits, and clips its update."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod

from differential_privacy_example.task import TRAINING, Net, load_data
from differential_privacy_example.task import train as train_fn
from fedcomp.flower import CompressionMod

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp, before the mods of Flower


@app.train(mods=[fixedclipping_mod])
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data; the mod clips the update."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    data = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    config = context.run_config
    loss = train_fn(model, data, config["local-epochs"], config["learning-rate"], config["batch-size"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)
