"""Models by name, from a logistic regression to VGG11* and a language model; four of them are models of the STC paper.

Each function takes the shape (C, H, W) and the number of classes, returns a module from (N, C, H, W) to logits (N, classes),
and raises `ValueError` if the shape does not fit.  Only `cnn_bn` has BatchNorm, and no model has dropout.  For the paper's
parameter counts see Sattler et al., IEEE TNNLS 2019, table II.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from fedcomp.core import check_int
from fedcomp.tasks.first_weights import HeConv2d, ZeroLinear, draw_weights, uniform

Shape = tuple[int, int, int]


def logistic(shape: Shape, num_classes: int) -> nn.Module:
    """Logistic regression; 10,250 parameters at 1x32x32 and ten classes."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, num_classes))


def mlp(shape: Shape, num_classes: int) -> nn.Module:
    """One hidden layer of 256; 19,210 parameters at 1x8x8."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * height * width, 256), nn.ReLU(), nn.Linear(256, num_classes)
    )


def cnn(shape: Shape, num_classes: int) -> nn.Module:
    """Two pooled 3x3 convolutions of 16 and 32, and a layer of 64; fits images of 8x8, with 13,706 parameters."""
    channels, height, width = shape
    _check_size("cnn", shape, least=4)
    return nn.Sequential(
        *_conv(channels, 16, kernel=3, padding=1, pool=True),
        *_conv(16, 32, kernel=3, padding=1, pool=True),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def cnn_bn(shape: Shape, num_classes: int) -> nn.Module:
    """`cnn` with batch normalization after each convolution; 13,802 parameters at 1x8x8."""
    layers: list[nn.Module] = []
    for layer in cnn(shape, num_classes).children():
        layers.append(layer)
        if isinstance(layer, nn.Conv2d):
            layers.append(nn.BatchNorm2d(layer.out_channels))
    return nn.Sequential(*layers)


def kws_cnn(shape: Shape, num_classes: int) -> nn.Module:
    """The STC paper's CNN for keywords: unpadded 5x5 convolutions, 2x2 pools; 876,938 parameters at 1x32x32."""
    channels, height, width = shape
    _check_size("kws_cnn", shape, least=16)
    rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
    return nn.Sequential(
        *_conv(channels, 32, kernel=5, padding=0, pool=True),
        *_conv(32, 64, kernel=5, padding=0, pool=True),
        nn.Flatten(),
        nn.Linear(64 * rows * columns, 512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )


class AdaptedLinear(nn.Module):
    """A frozen random layer W with a trained correction of rank `rank`: W x + B A x, where B starts as zeros.

    W is the same for every seed, and is not in the state dict: only A and B are trained and sent.
    Hu et al., ICLR 2022, arXiv:2106.09685, section 4.1.
    """

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        frozen = uniform((outputs, inputs), math.sqrt(6 / inputs), 0)  # of variance 2 / inputs
        self.register_buffer("frozen", frozen, persistent=False)
        self.a = nn.Linear(inputs, rank, bias=False)
        self.b = ZeroLinear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, outputs) of vectors (N, inputs)."""
        corrected: Tensor = nn.functional.linear(x, self.get_buffer("frozen")) + self.b(self.a(x))
        return corrected


def lora(shape: Shape, num_classes: int) -> nn.Module:
    """Two frozen hidden layers of 512 with trained low-rank adapters, and a trained head; 17,930 parameters at 1x8x8."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        AdaptedLinear(channels * height * width, 512),
        nn.ReLU(),
        AdaptedLinear(512, 512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )


class RowLstm(nn.Module):
    """Two LSTM layers of 128 over the rows of an image, as in the STC paper; 216,330 parameters at 1x32x32."""

    def __init__(self, shape: Shape, num_classes: int) -> None:
        super().__init__()
        channels, _, width = shape
        self.lstm = nn.LSTM(channels * width, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, classes) of images (N, C, H, W)."""
        rows = x.permute(0, 2, 1, 3).flatten(2)  # (N, H, C*W)
        states, _ = self.lstm(rows)
        logits: Tensor = self.head(states[:, -1])
        return logits


class CharLstm(nn.Module):
    """One LSTM layer of 128 over embedded characters predicts the next character; 92,443 parameters at 59 characters.

    A sample is (1, 1, T): T codes as floats, which are rounded and limited to the number of classes.
    """

    def __init__(self, shape: Shape, num_classes: int) -> None:
        super().__init__()
        if shape[:2] != (1, 1):
            raise ValueError(f"samples of shape {shape}; model char_lstm needs (1, 1, T), the codes of T characters")
        self.embedding = nn.Embedding(num_classes, 32)
        self.lstm = nn.LSTM(32, 128, batch_first=True)
        self.head = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, classes) of windows (N, 1, 1, T)."""
        codes = x[:, 0, 0].round().long().clamp(0, self.embedding.num_embeddings - 1)
        states, _ = self.lstm(self.embedding(codes))
        logits: Tensor = self.head(states[:, -1])
        return logits


def vgg11s(shape: Shape, num_classes: int) -> nn.Module:
    """VGG11*, the STC paper's narrow VGG11 (Simonyan and Zisserman, 2015); 865,482 parameters at 3x32x32.

    Convolutions are initialized as in He et al. (ICCV 2015, eq. 14, fan-out), with zero biases.  With torch's defaults the
    signal fades over eight layers without BatchNorm, and SGD stays at chance for thousands of steps.
    """
    channels, height, width = shape
    _check_size("vgg11s", shape, least=32)
    layers: list[nn.Module] = []
    for maps, pool in ((32, True), (64, True), (128, False), (128, True)) + 2 * ((128, False), (128, True)):
        layers += _conv(channels, maps, kernel=3, padding=1, pool=pool, convolution=HeConv2d)
        channels = maps
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(128 * (height // 32) * (width // 32), 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    )


MODELS: Mapping[str, Callable[[Shape, int], nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "cnn_bn": cnn_bn,
    "lora": lora,
    "kws_cnn": kws_cnn,
    "lstm": RowLstm,
    "vgg11s": vgg11s,
    "char_lstm": CharLstm,
}
"""Name -> constructor of each model."""


def build_model(name: str, shape: Shape, num_classes: int, seed: int) -> nn.Module:
    """Return the model on the CPU with weights drawn from `seed`: the same bits on every machine (`first_weights.py`).

    Torch's global random state does not change.  Raises `ValueError` for an unknown model, and for a shape that does not fit.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; there are: {', '.join(MODELS)}")
    if len(shape) != 3 or min(shape) < 1 or num_classes < 2:
        raise ValueError(f"shape {shape} and {num_classes} classes; (C, H, W) and at least 2 classes are needed")
    check_int("seed", seed, 0, 2**63 - 1)
    with torch.random.fork_rng(devices=[]):
        # Channels last in memory: on a CPU, pooling is several times faster and a step of the CNN twice as fast.
        model = convert_conv2d_weight_memory_format(MODELS[name](shape, num_classes), torch.channels_last)
    draw_weights(model, seed)
    return model


def _conv(
    maps_in: int, maps_out: int, *, kernel: int, padding: int, pool: bool, convolution: type[nn.Conv2d] = nn.Conv2d
) -> list[nn.Module]:
    """Return a convolution, a 2x2 max-pool if `pool`, and ReLU.

    ReLU after the max-pool gives the same values and gradients to the bit, with a quarter of the work.
    """
    layer = convolution(maps_in, maps_out, kernel, padding=padding)
    return [layer, nn.MaxPool2d(2), nn.ReLU()] if pool else [layer, nn.ReLU()]


def _check_size(name: str, shape: Shape, least: int) -> None:
    if min(shape[1:]) < least:
        raise ValueError(f"images of {shape[1]}x{shape[2]}; model {name} needs at least {least}x{least}")
