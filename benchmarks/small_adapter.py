"""A small language model of characters with adapters of rank 32, and their federated training on the sonnets."""

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from clients.samples import own_card
from fedcomp.data import Split, load

RANK, ALPHA = 32, 64
WIDTH, HEADS, LAYERS, LENGTH = 128, 4, 2, 32
BASE_POEMS, BASE_STEPS, BASE_BATCH, BASE_RATE = 40, 600, 64, 0.003
STEPS, BATCH, RATE = 10, 16, 1e-3
Adapter = dict[str, NDArray[np.float32]]


class Lora(nn.Module):
    """A linear layer with an adapter: ``W x + alpha / rank * B A x`` (Hu et al., ICLR 2022, section 4.1)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.empty(RANK, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with that of the adapter."""
        return cast(Tensor, self.base(x)) + ALPHA / RANK * (x @ self.a.T) @ self.b.T


class Block(nn.Module):
    """A transformer's layer: causal attention and two linear layers, each after a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.query: nn.Module = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value: nn.Module = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return hidden states (batch, length, width)."""
        normed = self.first(x)
        query, key, value = (
            layer(normed).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + cast(Tensor, self.narrow(functional.gelu(self.wide(self.second(x)))))


class SmallModel(nn.Module):
    """Predicts the next character."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, text: Tensor) -> Tensor:
        """Return the mean cross-entropy of each next character, for windows (batch, length + 1)."""
        x = self.embedding(text[:, :-1]) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), text[:, 1:].flatten())


class SmallTraining:
    """The small model, its weights trained on forty sonnets, and the other ones, divided in order, as the data of the nodes."""

    def __init__(self, nodes: int, seed: int = 0) -> None:
        """Train the weights of the model, freeze them, and put adapters around the layers of queries and values."""
        dataset = load(own_card("sonnets"))
        train, poem = _windows(dataset.train), torch.tensor(dataset.train.groups["sonnet"])
        own = poem >= BASE_POEMS
        self.parts = torch.tensor_split(train[own], nodes)
        self.test = _windows(dataset.test)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = SmallModel(dataset.card.num_classes)
            optimizer = torch.optim.Adam(self.model.parameters(), lr=BASE_RATE)
            for batch in _batches(train[~own], BASE_BATCH, BASE_STEPS, seed):
                _step(self.model, optimizer, batch)
            self.model.requires_grad_(False)
            for block in self.model.blocks:
                for name in ("query", "value"):
                    setattr(block, name, Lora(cast(nn.Linear, getattr(block, name))))

    @property
    def adapter(self) -> Adapter:
        """The adapter's tensors, as copies."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self._trained()}

    def set_adapter(self, adapter: Adapter) -> None:
        """Set the adapter's tensors."""
        with torch.no_grad():
            for name, tensor in self._trained():
                tensor.copy_(torch.from_numpy(adapter[name]))

    def train(self, node: int, seed: int) -> int:
        """Train the adapter on the data of `node`; return the number of its windows."""
        optimizer = torch.optim.AdamW([tensor for _, tensor in self._trained()], lr=RATE)
        for batch in _batches(self.parts[node], BATCH, STEPS, seed):
            _step(self.model, optimizer, batch)
        return len(self.parts[node])

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss on sonnets that no node has."""
        return float(self.model(self.test))

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, tensor) for name, tensor in self.model.named_parameters() if tensor.requires_grad)


def _windows(split: Split) -> Tensor:
    """Return the characters' codes, int64 (N, LENGTH + 1)."""
    return torch.tensor(np.column_stack([split.x.reshape(-1, LENGTH), split.y])).long()


def _batches(text: Tensor, size: int, count: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (text[torch.randint(len(text), (size,), generator=generator)] for _ in range(count))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> None:
    optimizer.zero_grad()
    model(batch).backward()
    optimizer.step()
