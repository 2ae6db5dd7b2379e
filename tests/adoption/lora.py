"""Low-rank factors beside a frozen network, as in FlowerTune: the factors alone are exchanged, with `strict=False`."""

from functools import cache
from typing import cast

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import accuracy, batches, held_out, own


class LoraLinear(nn.Module):
    """A frozen dense layer, and the product of two trained factors."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output, float32 (n, out_features)."""
        output: torch.Tensor = self.base(x) + x @ self.lora_a.T @ self.lora_b.T
        return output


@cache
def base_weights() -> dict[str, torch.Tensor]:
    """Return the weights of a network that was trained on mirrored images before."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        x, y = held_out()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.flip(3)), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.state_dict()


def make() -> nn.Module:
    """Return the frozen network with new factors."""
    base = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    base.load_state_dict(base_weights())
    for parameter in base.parameters():
        parameter.requires_grad = False
    return nn.Sequential(base[0], LoraLinear(cast(nn.Linear, base[1])), base[2], LoraLinear(cast(nn.Linear, base[3])))


def factors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return what is exchanged, as peft's `get_peft_model_state_dict` does."""
    return {name: tensor for name, tensor in model.state_dict().items() if "lora_" in name}


def loaded(arrays: ArrayRecord) -> nn.Module:
    """Return the network with these factors."""
    model = make()
    model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
    return model


def train(msg: Message, context: Context) -> Message:
    """Train the factors on local data."""
    model = loaded(cast(ArrayRecord, msg.content["arrays"]))
    x, y = own(context)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    loss = torch.zeros(())
    for batch in batches(len(y)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(factors(model)), "metrics": metrics}), reply_to=msg)


QUICKSTART = Quickstart(
    initial=lambda: ArrayRecord(factors(make())),
    train=train,
    score=lambda arrays: accuracy(loaded(arrays)),
    min_ratio=4.0,
)
