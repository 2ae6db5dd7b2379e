"""A network with batch normalization, whose statistics and counters travel with the weights."""

from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import accuracy, batches, own


def make() -> nn.Module:
    """Return a network with three normalized layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def loaded(arrays: ArrayRecord) -> nn.Module:
    """Return the network with these weights and statistics."""
    model = make()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"])).train()
    x, y = own(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.zeros(())
    for batch in batches(len(y)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(make().state_dict()),
    train=train,
    score=lambda arrays: accuracy(loaded(arrays)),
    rounds=16,
)
