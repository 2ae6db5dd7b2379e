"""The ClientApp: a node trains with its own and the shared control variates, and keeps its own."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from scaffold_example.task import Net, load_data, zeros
from scaffold_example.task import train as train_fn

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data, and reply with the change of the control variates, too."""
    model, config = Net(), context.run_config
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    shared = msg.content["control"].to_torch_state_dict()
    own = context.state["control"].to_torch_state_dict() if "control" in context.state else zeros()
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    settings = config["local-epochs"], config["learning-rate"], config["batch-size"]
    change = train_fn(model, data, own, shared, *settings)
    context.state["control"] = ArrayRecord({name: own[name] + change[name] for name in own})
    content = {"arrays": ArrayRecord(model.state_dict()), "control": ArrayRecord(change)}
    content["metrics"] = MetricRecord({"num-examples": len(data)})
    return Message(RecordDict(content), reply_to=msg)
