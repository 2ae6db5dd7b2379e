"""An app of split learning with a CNN; it records each message that a node begins to answer, and the trained model."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

import fedcomp
from fedcomp.core import write_archive
from fedcomp.flower.split import SplitClient, SplitTraining
from fedcomp.split import SplitSettings, cut, weights_of
from fedcomp.tasks import build_model

LAYER, CLASSES, SHAPE = "2", 4, (1, 8, 8)
SETTINGS = SplitSettings(fedcomp.cgx(bits=3), fedcomp.cgx(bits=8), batch_size=8, steps=4)
ROUNDS = 2
HELD, HELD_S = 2, 60.0
"""The answer that a node has made and saved, but not sent, for so many seconds: the test kills it then."""


def samples(node: int) -> tuple[Tensor, Tensor]:
    """Return 24 samples and labels of a node."""
    rng = np.random.default_rng(node)
    x = torch.from_numpy(rng.standard_normal((24, *SHAPE), np.float32))
    return x, torch.from_numpy(rng.integers(0, CLASSES, 24))


def start(context: Context) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the lower part and the samples of a node."""
    torch.set_num_threads(1)
    lower, _ = cut(build_model("cnn", SHAPE, CLASSES, 5), LAYER)
    return lower, *samples(int(context.node_config["partition-id"]))


client = SplitClient(start)
client_app = ClientApp()


@client_app.query("split")
def answer(message: Message, context: Context) -> Message:
    """Touch a file, and answer; the third answer is held back for a while."""
    if "SPLIT_BOOK" not in os.environ:
        return client(message, context)
    folder = Path(os.environ["SPLIT_BOOK"]) / f"node-{context.node_config['partition-id']}"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.begun")))
    (folder / f"{number}.begun").touch()
    reply = client(message, context)
    if number == HELD:
        (folder / "held").touch()
        time.sleep(HELD_S)
    return reply


def train(grid: Grid) -> tuple[nn.Module, SplitTraining]:
    """Return the trained model, and the training."""
    torch.set_num_threads(1)
    model = build_model("cnn", SHAPE, CLASSES, 5)
    example = torch.zeros(1, *SHAPE)
    training = SplitTraining(*cut(model, LAYER), example, SETTINGS, seed=3, timeout_s=20, attempts=100)
    training.run(grid, ROUNDS, node_timeout_s=300)
    return model, training


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the model and the traffic."""
    model, training = train(grid)
    folder = Path(os.environ["SPLIT_BOOK"])
    write_archive(folder / "model.npz", weights_of(model))
    (folder / "traffic.json").write_text(json.dumps(asdict(training.traffic)))
