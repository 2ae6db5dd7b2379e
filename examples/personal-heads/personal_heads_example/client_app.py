"""The ClientApp: a node trains the shared body and its own head, and keeps the head."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from personal_heads_example.task import Net, load_data, test
from personal_heads_example.task import train as train_fn

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


def load_model(msg: Message, context: Context) -> Net:
    """Return the body of the message under the head of this node, which is new in its first round."""
    model = Net()
    body = msg.content["arrays"].to_torch_state_dict()
    head = context.state["head"].to_torch_state_dict() if "head" in context.state else {}
    model.load_state_dict(body | head, strict=False)
    return model


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model, config = load_model(msg, context), context.run_config
    data, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train_fn(model, data, config["local-epochs"], config["learning-rate"], config["batch-size"])
    weights = model.state_dict()
    context.state["head"] = ArrayRecord({name: weight for name, weight in weights.items() if name.startswith("head.")})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data)})
    return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test the body with this node's head on this node's data."""
    _, data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = MetricRecord({"accuracy": test(load_model(msg, context), data), "num-examples": len(data)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
