"""Feature skew on tensors: a client's samples turned or made noisy, as its partition says."""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.core import RandomStream, Vector
from fedcomp.data import Rotation, parse_partition

STREAM = 0x6E6F697365
"""The first word of the noise's seed, so that nothing else draws the same numbers from a run's seed."""


def skew(x: Tensor, text: str, client: int, num_clients: int, seed: int) -> Tensor:
    """Return samples `x` (N, C, H, W), as `prepare` gives them, with the feature skews of the partition `text`.

    Client `client` of `num_clients`, counted from 0, gets what is its own, in the order of the text.  `x` is not
    touched, and is itself returned where the text has no skew.  The noise is the same for a seed on every machine; a
    rotation is up to the last bits of the machine's arithmetic.  Raises `ValueError` for a text that is no partition,
    for a client that is none of `num_clients`, and for a rotation of samples that are no images.
    """
    if not 0 <= client < num_clients:
        raise ValueError(f"client {client} of {num_clients}; 0 to {num_clients - 1} is needed")
    for item in parse_partition(text).skews:
        if isinstance(item, Rotation):
            x = rotate(x, item.angle(client, num_clients))
        else:
            x = x + item.level(client, num_clients) * gaussian(x, client, seed)
    return x


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Return images (N, C, H, W) turned counter-clockwise about their centre, bilinear; what comes in repeats the edge.

    Raises `ValueError` for images of a single row or column.
    """
    height, width = x.shape[2:]
    if min(height, width) < 2:
        raise ValueError(f"samples of {height}x{width}; images of at least 2x2 are needed to rotate them")
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if len(x) == 0:
        return x
    # Where each pixel comes from, in coordinates from -1 to 1 whose units differ where height and width do.
    rows = ((cos, -sin * height / width, 0.0), (sin * width / height, cos, 0.0))
    theta = torch.tensor([rows], dtype=x.dtype, device=x.device).expand(len(x), 2, 3)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def gaussian(x: Tensor, client: int, seed: int) -> Tensor:
    """Return standard normal noise of the shape and on the device of `x`, the same for a seed and client everywhere."""
    words = RandomStream(STREAM, client, seed).words(-(-x.numel() // 2))
    levels = words.astype("<u4").view("<u2")[: x.numel()]
    return torch.from_numpy(_quantiles()[levels]).reshape(x.shape).to(x.device)


@cache
def _quantiles() -> Vector:
    """Return the 65,536 quantiles of the normal distribution, up to 4.3: sixteen random bits choose one.

    Rounded, so that the last bits of a machine's logarithm do not show.
    """
    normal = NormalDist()
    return np.array([round(normal.inv_cdf((level + 0.5) / 65536), 7) for level in range(65536)], np.float32)
