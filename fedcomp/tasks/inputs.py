"""Model inputs from stored arrays: scaled, resized and normalised as the card says."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcomp.data import Card


def input_shape(card: Card) -> tuple[int, int, int]:
    """Return the shape (C, H, W) of each sample after `prepare`; features become one row, (1, 1, features)."""
    channels, height, width = card.shape if len(card.shape) == 3 else (1, 1, card.shape[0])
    return (channels, height, width) if card.resize is None else (channels, card.resize, card.resize)


def prepare(x: NDArray[Any], card: Card, device: torch.device | str) -> Tensor:
    """Return `x`, uint8 or float32 (N, *card.shape), as float32 (N, C, H, W) on `device`.

    uint8 is scaled to [0, 1], float32 is not.  Then the card's bilinear resize, mean and std are applied, with a low-pass
    filter if images become smaller.  Raises `ValueError` for another shape or dtype.
    """
    if x.shape[1:] != card.shape or x.dtype.name not in ("uint8", "float32"):
        raise ValueError(f"samples of shape {x.shape[1:]} and dtype {x.dtype}; uint8 or float32 {card.shape} is needed")
    channels, height, width = input_shape(card)
    values = torch.tensor(x, device=device)  # as stored: a byte per value is copied to the device
    values = values.float().div_(255) if x.dtype == np.uint8 else values
    values = values.reshape(-1, channels, *(card.shape[1:] if len(card.shape) == 3 else (1, width)))
    if values.shape[2:] != (height, width):
        smaller = height * width < values.shape[2] * values.shape[3]
        values = functional.interpolate(values, size=(height, width), mode="bilinear", antialias=smaller)
    mean = torch.tensor(card.mean, device=device).reshape(-1, 1, 1)
    std = torch.tensor(card.std, device=device).reshape(-1, 1, 1)
    return values.sub_(mean).div_(std)
