"""The ClientApp: a node adds trees that fit its own samples."""

import xgboost
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import CompressionMod
from xgboost_example.task import TRAINING, load_data, load_model, parameters, to_bytes, to_record

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Add the trees of one boosting round to the model, and reply with these trees alone."""
    data = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    settings = parameters(context.run_config["learning-rate"], context.run_config["max-depth"])
    model = to_bytes(msg.content["arrays"])
    trees = xgboost.train(settings, data, num_boost_round=1, xgb_model=load_model(model) if model else None)
    last = trees.num_boosted_rounds() - 1
    metrics = MetricRecord({"num-examples": data.num_row()})
    content = RecordDict({"arrays": to_record(bytes(trees[last:].save_raw("json"))), "metrics": metrics})
    return Message(content, reply_to=msg)
