"""Feature skews on tensors: the rotations and the noise of a partition text, applied to a client's samples."""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.core import RandomStream, Vector
from fedcomp.data import ImageRotation, parse_partition

STREAM = 0x6E6F697365
"""The first word of the noise's seed, so that no other part of a run draws the same numbers."""


def skew(x: Tensor, text: str, client: int, num_clients: int, seed: int) -> Tensor:
    """Return samples `x` (N, C, H, W), as `prepare` returns them, with the feature skews of the partition `text`.

    The skews of client `client`, 0 to `num_clients` - 1, are applied in the order of the text.  `x` is not changed; without
    skews it is returned itself.  The noise for a seed is the same on every machine; rotations may differ in their last bits.
    Raises `ValueError` if the text is no partition, the client has no such number, or the samples to rotate are no images.
    """
    if not 0 <= client < num_clients:
        raise ValueError(f"client {client} of {num_clients}; 0 to {num_clients - 1} is needed")
    for item in parse_partition(text).skews:
        if isinstance(item, ImageRotation):
            x = rotate(x, item.angle(client, num_clients))
        else:
            x = x + item.level(client, num_clients) * gaussian(x, client, seed)
    return x


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Return images (N, C, H, W) rotated counter-clockwise about their centre.

    The interpolation is bilinear, and pixels outside the image repeat its edge.  Raises `ValueError` for images of one row or
    column.
    """
    height, width = x.shape[2:]
    if min(height, width) < 2:
        raise ValueError(f"samples of {height}x{width}; images of at least 2x2 are needed to rotate them")
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if len(x) == 0:
        return x
    # The source of each pixel, in coordinates from -1 to 1, whose units differ if height and width do.
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
    """Return 65,536 quantiles of the normal distribution, from -4.3 to 4.3: sixteen random bits choose one.

    They are rounded, so that they do not depend on the last bits of a machine's logarithm.
    """
    normal = NormalDist()
    return np.array([round(normal.inv_cdf((level + 0.5) / 65536), 7) for level in range(65536)], np.float32)
