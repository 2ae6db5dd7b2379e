"""The weights from which training starts, drawn from a seed: the same bits on every processor and in every release.

Torch's own generators promise neither.  The distributions are those of torch's layers, or of He et al., ICCV 2015, if a layer
asks for it.  All are uniform, so that each number takes one rounded product.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core import RandomStream


class HeConv2d(nn.Conv2d):
    """A convolution for deep stacks of ReLU: variance 2 / fan-out (He et al., eq. 14), and no bias at first."""


class ZeroLinear(nn.Linear):
    """A linear layer that starts as zeros."""


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Replace all parameters of `model`: number i in order is drawn from stream (i, `seed`).

    Batch normalization starts with factors of 1 and no offsets.
    Raises `ValueError` for a layer whose initial distribution is unknown.
    """
    number = 0
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            number += 1
            if isinstance(module, nn.BatchNorm2d):
                parameter.fill_(1.0 if name == "weight" else 0.0)
            else:
                parameter.copy_(uniform(parameter.shape, _bound(module, name), number, seed))


def uniform(shape: torch.Size | tuple[int, ...], bound: float, *seed: int) -> Tensor:
    """Return float32 numbers from -`bound` to `bound`, evenly distributed; `seed` as for `RandomStream`."""
    if not bound:
        return torch.zeros(shape)
    numbers = RandomStream(*seed).uniform(math.prod(shape))
    numbers *= 2  # exact, like the difference
    numbers -= 1
    numbers *= np.float32(bound)
    return torch.from_numpy(numbers).reshape(shape)


def _bound(module: nn.Module, name: str) -> float:
    """Return the largest magnitude of a parameter."""
    if isinstance(module, ZeroLinear):
        return 0.0
    if isinstance(module, HeConv2d):
        fan_out = module.out_channels * math.prod(module.kernel_size)
        return 0.0 if name == "bias" else math.sqrt(6 / fan_out)
    if isinstance(module, nn.Conv2d):
        return 1 / math.sqrt(module.in_channels * math.prod(module.kernel_size))
    if isinstance(module, nn.Linear):
        return 1 / math.sqrt(module.in_features)
    if isinstance(module, nn.Embedding):
        return math.sqrt(3)  # of variance 1
    if isinstance(module, nn.LSTM):
        return 1 / math.sqrt(module.hidden_size)
    raise ValueError(
        f"the first weights of {type(module).__name__} are not known; add them to fedcomp.tasks.first_weights"
    )
