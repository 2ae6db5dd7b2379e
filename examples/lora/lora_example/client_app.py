"""The ClientApp: a node trains the adapter on its own texts."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from fedcomp.flower import CompressionMod
from lora_example.task import load_model, load_texts
from lora_example.task import train as train_fn

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the adapter on local data; the base model never travels."""
    config = context.run_config
    model, tokenizer = load_model(config["model"])
    set_peft_model_state_dict(model, msg.content["arrays"].to_torch_state_dict())
    texts = load_texts(context.node_config["partition-id"])
    loss = train_fn(model, tokenizer, texts, config["local-steps"], config["learning-rate"], config["batch-size"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(texts)})
    adapter = ArrayRecord(get_peft_model_state_dict(model))
    return Message(RecordDict({"arrays": adapter, "metrics": metrics}), reply_to=msg)
