"""A variational autoencoder, as in federated-vae: the loss is the result."""

from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import batches, held_out, own


class Net(nn.Module):
    """An encoder to means and log-variances, and a decoder."""

    def __init__(self, latent: int = 10) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 64))

    def loss(self, x: torch.Tensor, *, sample: bool) -> torch.Tensor:
        """Return the negative evidence lower bound for each pixel; the latent variable is its mean unless `sample`."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * torch.exp(log_variance / 2) if sample else mean
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(1) / 2
        error: torch.Tensor = nn.functional.mse_loss(self.decoder(latent), x.flatten(1))
        error += 0.1 * divergence.mean() / 64
        return error


def loaded(arrays: ArrayRecord) -> Net:
    """Return the network with these weights."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    x, y = own(context)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = torch.zeros(())
    for _ in range(2):
        for batch in batches(len(y)):
            optimizer.zero_grad()
            loss = model.loss(x[batch], sample=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


def score(arrays: ArrayRecord) -> float:
    """Return the loss on samples that no node has."""
    with torch.no_grad():
        return float(loaded(arrays).loss(held_out()[0], sample=False))


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(Net().state_dict()),
    train=train,
    score=score,
    is_loss=True,
    rounds=12,
)
