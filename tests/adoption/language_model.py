"""A tiny language model with tied embeddings, whose evaluation returns the model, as quickstart-huggingface does."""

from functools import cache
from typing import cast

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from torch import nn

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import batches

WORDS, WIDTH = 48, 24


class Net(nn.Module):
    """Predicts a word from the one before; its embedding is its output layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        self.output.weight = self.embedding.weight

    def loss(self, words: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of each next word, for sequences (n, length)."""
        scores = self.output(torch.relu(self.hidden(self.embedding(words[:, :-1]))))
        return nn.functional.cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())


@cache
def sentences(seed: int) -> torch.Tensor:
    """Return 60 sequences of 16 words; each word has four likely successors."""
    successors = np.random.default_rng(0).integers(WORDS, size=(WORDS, 4))
    rng = np.random.default_rng([1, seed])
    words = [rng.integers(WORDS, size=60)]
    for _ in range(15):
        words.append(successors[words[-1], rng.integers(4, size=60)])
    return torch.tensor(np.stack(words, axis=1))


def loaded(arrays: ArrayRecord) -> Net:
    """Return the network with these weights."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    words = sentences(int(context.node_config["partition-id"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loss = torch.zeros(())
    for batch in batches(len(words), 10):
        optimizer.zero_grad()
        loss = model.loss(words[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(words)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data, and return it with the result."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    words = sentences(int(context.node_config["partition-id"]))
    with torch.no_grad():
        metrics = MetricRecord({"eval_loss": float(model.loss(words)), "num-examples": len(words)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


def score(arrays: ArrayRecord) -> float:
    """Return the loss on sentences that no node has."""
    with torch.no_grad():
        return float(loaded(arrays).loss(sentences(99)))


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(Net().state_dict()),
    train=train,
    evaluate=evaluate,
    score=score,
    is_loss=True,
    strategy=FedAvg,
    settings={"tied": [("embedding.weight", "output.weight")]},
    rounds=20,
)
