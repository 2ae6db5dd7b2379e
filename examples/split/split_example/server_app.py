"""The ServerApp: the upper layers, and a test on digits that no node has."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

import fedcomp
from fedcomp.flower.split import SplitTraining
from fedcomp.split import SplitSettings
from split_example.task import TRAINING, Lower, Upper, load_data, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print bytes and accuracy."""
    config, lower, upper = context.run_config, Lower(), Upper()
    forward, backward = fedcomp.dense(), fedcomp.dense()
    if config["compress"]:
        forward, backward = fedcomp.cgx(bits=2), fedcomp.cgx(bits=8)  # <-- fedcomp: activations up, gradients down
    settings = SplitSettings(
        forward,
        backward,
        batch_size=config["batch-size"],
        steps=config["local-steps"],
        learning_rate=config["learning-rate"],
    )
    training = SplitTraining(lower, upper, load_data(slice(1)).tensors[0], settings)
    training.run(grid, config["num-server-rounds"], min_nodes=config["num-nodes"])
    sent = training.traffic
    up = compared(sent.uplink_bytes, sent.dense_uplink_bytes)
    down = compared(sent.downlink_bytes, sent.dense_downlink_bytes)
    print(f"up {up}; down {down}; together {compared(sent.sent_bytes, sent.dense_bytes)}")
    print(f"accuracy {test(nn.Sequential(lower, upper), load_data(slice(TRAINING, None))):.1%}")


def compared(sent_bytes: int, dense_bytes: int) -> str:
    """Return the bytes sent, and how they compare with those of float32."""
    return f"{sent_bytes / 1e6:.1f} MB, {dense_bytes / sent_bytes:.1f} times smaller"
