"""The ClientApp: a node trains the adapter on its own texts."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from lora_example.task import get_adapter, load_model, load_texts, set_adapter
from lora_example.task import train as train_fn


def first_adapter(context: Context) -> ArrayRecord:
    """Return the adapter with which training starts: each node makes it, so that it is not sent."""
    return get_adapter(load_model(context.run_config)[0])


app = ClientApp(mods=[CompressionMod(start=first_adapter)])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the adapter on local data."""
    config, node = context.run_config, context.node_config
    model, tokenizer = load_model(config)
    set_adapter(model, msg.content["arrays"])
    texts = load_texts(config, node["partition-id"], node["num-partitions"])
    loss = train_fn(model, tokenizer, texts, config, msg.content["config"]["server-round"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(texts)})
    return Message(RecordDict({"arrays": get_adapter(model), "metrics": metrics}), reply_to=msg)
