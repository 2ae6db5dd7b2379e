"""An autoencoder under a trainer class, as in quickstart-pytorch-lightning; here with a trainer of a few lines."""

from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import held_out, own


class LitAutoEncoder(nn.Module):
    """An autoencoder that says how it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))
        self.decoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64))

    def training_step(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the loss of a batch."""
        x = batch[0].flatten(1)
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class Trainer:
    """Runs the steps of a module over the batches of a loader."""

    def __init__(self, max_epochs: int) -> None:
        self.max_epochs = max_epochs
        self.callback_metrics: dict[str, float] = {}

    def fit(self, model: LitAutoEncoder, loader: DataLoader[tuple[torch.Tensor, ...]]) -> None:
        """Train `model`."""
        optimizer = model.configure_optimizers()
        for _ in range(self.max_epochs):
            for batch in loader:
                optimizer.zero_grad()
                loss = model.training_step(batch)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                self.callback_metrics["train_loss"] = loss.item()


def loaded(arrays: ArrayRecord) -> LitAutoEncoder:
    """Return the module with these weights."""
    model = LitAutoEncoder()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    x, y = own(context)
    trainer = Trainer(max_epochs=2)
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True))
    metrics = MetricRecord({"num-examples": len(y), **trainer.callback_metrics})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


def score(arrays: ArrayRecord) -> float:
    """Return the loss on samples that no node has."""
    with torch.no_grad():
        return float(loaded(arrays).training_step(held_out()))


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(LitAutoEncoder().state_dict()),
    train=train,
    score=score,
    is_loss=True,
)
