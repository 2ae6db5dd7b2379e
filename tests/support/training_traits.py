"""Models of every kind, and for each plug-in of `fedcomp.training` whether it works on them or refuses them.

`tests/training/test_traits.py` checks each pair; a script can import the table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence

ROWS, CLASSES = 64, 5
Outcome = Literal["works", "refused"]


@dataclass(frozen=True)
class Case:
    """A model with a batch of images (64, 1, 8, 8), in so many parts of a step, and the same model without torch.compile."""

    model: nn.Module
    parts: int = 1
    dtype: torch.dtype = torch.float32
    eager: nn.Module | None = None

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return the samples and their labels, always the same."""
        generator = torch.Generator().manual_seed(1)
        x = torch.rand(ROWS, 1, 8, 8, generator=generator)
        return x.to(self.dtype), torch.randint(CLASSES, (ROWS,), generator=generator)


def plain(middle: nn.Module | None = None) -> nn.Sequential:
    """Return linear layers of 50, the second one inside of `middle` if it is given."""
    torch.manual_seed(0)
    layers = nn.Linear(64, 50), nn.Linear(50, 50), nn.Linear(50, CLASSES)
    first, second, third = layers
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), middle or second, nn.ReLU(), third)


def second(model: nn.Sequential) -> nn.Linear:
    """Return the second layer of a plain model."""
    return cast("nn.Linear", model[3])


class Own(nn.Module):
    """A plain model with a forward of its own: torch.compile leaves torch's containers as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = plain()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        return cast("Tensor", self.layers(x))


GRAPHS: list[torch.fx.GraphModule] = []
"""What torch.compile has made of these models."""


def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
    """Return how to call a graph: as it is."""
    GRAPHS.append(graph)
    return graph.forward


def compiled(how: str) -> Case:
    """Return a plain model, compiled as a whole, in place, or in a part."""
    model = Own()
    if how == "whole":
        return Case(cast("nn.Module", torch.compile(model, backend=backend)), eager=Own())
    if how == "in place":
        model.compile(backend=backend)
    else:
        model.layers[3] = cast("nn.Module", torch.compile(model.layers[3], backend=backend))
    return Case(model, eager=Own())


def codes_of(x: Tensor) -> Tensor:
    """Return images as 64 codes below 10."""
    return (x.flatten(1).float() * 9.99).long()


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer as well."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.middle, self.head = nn.Embedding(10, 50), nn.Linear(50, 50), nn.Linear(50, 10)
        self.last = nn.Linear(50, 10)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        features = functional.relu(self.middle(self.embedding(codes_of(x))))
        return cast("Tensor", self.head(features).mean(1) + self.last(features.mean(1)))


class SparseEmbedding(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.layers = nn.Embedding(10, 50, sparse=True), plain()[3:]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        return cast("Tensor", self.layers(self.embedding(codes_of(x)).mean(1)))


class Recurrent(nn.Module):
    """An LSTM over the rows of images, which may be packed sequences of 3 to 8 rows."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.packed, self.lstm = packed, nn.LSTM(8, 50, batch_first=True)
        self.layers = plain()[3:]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        rows = x[:, 0]
        if not self.packed:
            return cast("Tensor", self.layers(self.lstm(rows)[0].mean(1)))
        lengths = 3 + torch.arange(len(rows)) % 6
        packed = pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
        return cast("Tensor", self.layers(self.lstm(packed)[1][0][-1]))


class Attention(nn.Module):
    """Self-attention between the rows of images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.outer, self.head = nn.Linear(256, 50), nn.Linear(50, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        rows = functional.relu(self.inner(x[:, 0]))
        features = self.attention(rows, rows, rows, need_weights=False)[0]
        return cast("Tensor", self.head(functional.relu(self.outer(features.flatten(1)))))


class Twice(nn.Module):
    """Calls its second layer two times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = plain()[:3], second(plain()), plain()[5]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        x = functional.relu(self.second(self.first(x)))
        return cast("Tensor", self.third(functional.relu(self.second(x))))


def convolutions() -> nn.Sequential:
    """Return two convolutions with batch normalization, and a linear layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8),
        nn.ReLU(), nn.Flatten(), nn.Linear(512, CLASSES),
    )  # fmt: skip


def frozen(*places: int) -> nn.Sequential:
    """Return a plain model without gradients in the modules at these places."""
    model = plain()
    for place in places:
        model[place].requires_grad_(False)
    return model


def changed(change: Callable[[nn.Linear], object]) -> nn.Sequential:
    """Return a plain model whose second layer was changed."""
    model = plain()
    change(second(model))
    return model


def weight_norm(layer: nn.Linear) -> object:
    """Compute the weight from its rows' norms and directions."""
    return parametrizations.weight_norm(layer)


def spectral_norm(layer: nn.Linear) -> object:
    """Divide the weight by its largest singular value."""
    return parametrizations.spectral_norm(layer)


def pruned(layer: nn.Linear) -> object:
    """Multiply the weight by a mask."""
    return prune.l1_unstructured(layer, "weight", 0.5)  # type: ignore[no-untyped-call]


def in_place() -> nn.Sequential:
    """Return a plain model whose activations are changed in place."""
    model = plain()
    model[2], model[4] = nn.ReLU(inplace=True), nn.ReLU(inplace=True)
    return model


def of_the_weights_shape() -> nn.Sequential:
    """Return a model in which the input of the second layer has the shape of its weight, (64, 50)."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 50), nn.LayerNorm(50), nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )


TRAITS: Mapping[str, Callable[[], Case]] = {
    "ordinary": lambda: Case(plain()),
    "torch.compile(model)": lambda: compiled("whole"),
    "model.compile()": lambda: compiled("in place"),
    "a compiled part": lambda: compiled("in a part"),
    "tied weights": lambda: Case(Tied()),
    "weight_norm": lambda: Case(changed(weight_norm)),
    "spectral_norm": lambda: Case(changed(spectral_norm)),
    "pruned weights": lambda: Case(changed(pruned)),
    "sparse gradients": lambda: Case(SparseEmbedding()),
    "gradient accumulation": lambda: Case(plain(), parts=2),
    "frozen first layer": lambda: Case(frozen(1)),
    "frozen last layer": lambda: Case(frozen(5)),
    "frozen model": lambda: Case(frozen(1, 3, 5)),
    "batch normalization": lambda: Case(convolutions()),
    "channels last": lambda: Case(convolutions().to(memory_format=torch.channels_last)),  # type: ignore[call-overload]
    "LSTM": lambda: Case(Recurrent(packed=False)),
    "packed sequences": lambda: Case(Recurrent(packed=True)),
    "attention": lambda: Case(Attention()),
    "float64": lambda: Case(plain().double(), dtype=torch.float64),
    "bfloat16": lambda: Case(plain().bfloat16(), dtype=torch.bfloat16),
    "activations in place": lambda: Case(in_place()),
    "a layer called twice": lambda: Case(Twice()),
    "lazy parameters": lambda: Case(plain(nn.LazyLinear(50))),
    "an input of the weight's shape": lambda: Case(of_the_weights_shape()),
}
"""Trait -> a model that has it, always with the same weights."""

FLOAT16 = "mixed_precision('float16')"
"""Its begin needs a GPU; on a CPU, the tests begin with the class itself."""
UNFIT = {"frozen model", "lazy parameters"}
OTHER_DTYPES = {"float64", "bfloat16"}
COMPUTED = {"weight_norm", "spectral_norm", "pruned weights"}
COMPILED = {"torch.compile(model)", "model.compile()", "a compiled part"}
RECURRENT = {"LSTM", "packed sequences"}
REFUSED: Mapping[str, set[str]] = {
    "fedprox(1.0)": UNFIT,
    "batch_augmentation(2)": UNFIT,
    "mixed_precision()": UNFIT | OTHER_DTYPES,
    FLOAT16: UNFIT | OTHER_DTYPES,
    "activation_compression(0.1)": UNFIT | COMPUTED | COMPILED,
    "admm(rho=1.0)": UNFIT | OTHER_DTYPES | COMPUTED,
    "quantized('ternary')": UNFIT | OTHER_DTYPES | COMPUTED,
    "quantized('ternary', activations=2)": UNFIT | OTHER_DTYPES | COMPUTED,
    "quantized('ternary', hidden=2)": set(TRAITS) - RECURRENT,
    "low_precision(2)": UNFIT | OTHER_DTYPES | COMPUTED,
    "zerofl(0.8, upload='full')": UNFIT | OTHER_DTYPES | COMPUTED | COMPILED,
    "rigl(0.3)": UNFIT | OTHER_DTYPES | COMPUTED | {"sparse gradients"},
}
"""Plug-in -> the traits that it refuses in one sentence before the first step."""
EXPECTED: Mapping[tuple[str, str], Outcome] = {
    (text, trait): "refused" if trait in refused else "works" for text, refused in REFUSED.items() for trait in TRAITS
}
"""Plug-in and trait -> what happens."""
