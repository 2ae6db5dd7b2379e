"""The ClientApp: a node has the lower layers and the samples."""

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedcomp.flower.split import SplitClient
from split_example.task import TRAINING, Lower, load_data

app = ClientApp()


def start(context: Context):
    """Return the lower layers, and this node's samples and labels."""
    data = load_data(slice(context.node_config["partition-id"], TRAINING, context.node_config["num-partitions"]))
    return Lower(), *data.tensors


app.query("split")(SplitClient(start))  # <-- fedcomp: the training of the node
