"""Training with other weights than those that are kept: the weights to change, and the straight-through gradient."""

import torch
from torch import Tensor, nn

NORMALIZATIONS = (nn.LayerNorm, nn.RMSNorm)
"""Layers whose parameters have two or more dimensions and are no matrices: a factor and an offset for each entry."""


def straight_through(latent: Tensor, used: Tensor) -> Tensor:
    """Return `used`, whose gradient becomes that of `latent` unchanged (Bengio et al., arXiv 1308.3432).

    Both have one shape.  The values are those of `used`, exactly.
    """
    return used.detach() + (latent - latent.detach())  # a zero that has the gradient


def matrices(model: nn.Module, plugin: str) -> list[str]:
    """Return the names of the trained weights of two or more dimensions: those of layers, not biases or normalization.

    Weights without entries are left out.  Raises `ValueError`, which names the `plugin`, if there are none, or one is not
    float32.
    """
    others = {
        id(weight)
        for module in model.modules()
        if isinstance(module, NORMALIZATIONS)
        for weight in module.parameters(recurse=False)
    }
    named = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.dim() > 1 and weight.numel() and id(weight) not in others
    }
    if not named:
        raise ValueError(f"{plugin}() needs trained weights of at least two dimensions; the model has none")
    for name, weight in named.items():
        if weight.dtype != torch.float32:
            raise ValueError(f"{plugin}() trains float32 weights; {name} has {weight.dtype}")
    return list(named)
