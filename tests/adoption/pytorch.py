"""A convolutional network in PyTorch, as in quickstart-pytorch."""

from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import accuracy, own


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2 = nn.Linear(16 * 4 * 4, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 (n, 10)."""
        x = self.pool(torch.relu(self.conv2(torch.relu(self.conv1(x)))))
        hidden: torch.Tensor = self.fc2(torch.relu(self.fc1(x.flatten(1))))
        return hidden


def loaded(arrays: ArrayRecord) -> Net:
    """Return the network with these weights."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    loader = DataLoader(TensorDataset(*own(context)), batch_size=10, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    running_loss = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        running_loss += loss.item()
    metrics = MetricRecord({"train_loss": running_loss / len(loader), "num-examples": len(loader.dataset)})  # type: ignore[arg-type]
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"])).eval()
    x, y = own(context)
    with torch.no_grad():
        correct = float((model(x).argmax(1) == y).float().mean())
    metrics = MetricRecord({"eval_acc": correct, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(Net().state_dict()),
    train=train,
    evaluate=evaluate,
    score=lambda arrays: accuracy(loaded(arrays)),
    rounds=12,
)
