"""The ClientApp: a node trains on its own digits."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from lightning_example.task import TRAINING, LitAutoEncoder, load_data, trainer

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = LitAutoEncoder(context.run_config["learning-rate"])
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    data = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    fit = trainer(context.run_config["max-epochs"])
    fit.fit(model, data)
    loss = fit.callback_metrics["train_loss"].item()
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)
