"""The ClientApp: a node trains on its own digits."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.exceptions import ConvergenceWarning

from fedcomp.flower import CompressionMod
from scikit_learn_example.task import TRAINING, load_data, with_parameters

app = ClientApp(mods=[CompressionMod()])  # <-- fedcomp


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = with_parameters(msg.content["arrays"].to_numpy_ndarrays(), context.run_config["local-epochs"])
    x, y = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # the few iterations are on purpose
        model.fit(x, y)
    metrics = MetricRecord({"train_acc": model.score(x, y), "num-examples": len(y)})
    return Message(
        RecordDict({"arrays": ArrayRecord([model.coef_, model.intercept_]), "metrics": metrics}), reply_to=msg
    )
