"""Calling a model with other weights than the trained ones: the weights to replace, and the straight-through gradient."""

from collections.abc import Callable, Container
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedcomp.training.layer_inputs import MATRIX_LAYERS
from fedcomp.training.model_checks import check_weights_are_parameters
from fedcomp.training.step import Tensors

MATRIX_MODULES = (*MATRIX_LAYERS, nn.Bilinear, nn.Embedding, nn.EmbeddingBag, nn.RNNCellBase)
"""Modules whose weights are matrices, also those with one row or one column."""
NORMALIZATIONS = (nn.LayerNorm, nn.RMSNorm)
"""Layers whose parameters have two or more dimensions and are no matrices: a factor and an offset for each entry."""


def straight_through(latent: Tensor, used: Tensor) -> Tensor:
    """Return `used`, whose gradient becomes that of `latent` unchanged (Bengio et al., arXiv 1308.3432).

    Both have one shape.  The values are exactly those of `used`, in the memory layout of `latent`.  The output of a convolution
    has the layout of its weights, and pooling is several times faster for channels last.
    """
    return cast("Tensor", _StraightThrough.apply(latent, used))  # type: ignore[no-untyped-call]


def with_used(weights: Tensors, names: Container[str], use: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Return the weights with the results of `use` in place of those with these names, by `straight_through`."""
    return {
        name: straight_through(weight, use(weight.detach())) if name in names else weight
        for name, weight in weights.items()
    }


def matrices(model: nn.Module, plugin: str) -> list[str]:
    """Return the names of the trained weights of two or more dimensions, without biases and normalization.

    Weights without entries are left out, and so are vectors with further axes of length 1, such as a class token (1, 1, D) or
    the scale of a layer (C, 1, 1), unless they are the weight of a torch layer, such as ``Linear(1, 8)``.

    Raises `ValueError`, which names the `plugin`, if there are no such weights, or if one is not float32 or not a parameter
    of its layer.
    """
    check_weights_are_parameters(model, plugin)
    norms, layers = (_own_weights(model, kinds) for kinds in (NORMALIZATIONS, MATRIX_MODULES))
    named = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.dim() > 1 and weight.numel() and id(weight) not in norms
        if sum(size > 1 for size in weight.shape) > 1 or (id(weight) in layers and not _is_bias(name))
    }
    if not named:
        raise ValueError(f"{plugin}() needs trained weights of at least two dimensions; the model has none")
    for name, weight in named.items():
        if weight.dtype != torch.float32:
            raise ValueError(f"{plugin}() trains float32 weights; {name} has {weight.dtype}")
    return list(named)


def _own_weights(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> set[int]:
    """Return the identities of the parameters of the modules of these kinds."""
    modules = (module for module in model.modules() if isinstance(module, kinds))
    return {id(weight) for module in modules for weight in module.parameters(recurse=False)}


def _is_bias(name: str) -> bool:
    """Return whether a parameter is a bias by its name, such as ``bias_k`` (1, 1, E) of attention."""
    return name.rpartition(".")[2].startswith("bias")


class _StraightThrough(torch.autograd.Function):
    """Returns its second input with the gradient of its first."""

    @staticmethod
    def forward(ctx: Any, latent: Tensor, used: Tensor) -> Tensor:
        return torch.empty_like(latent).copy_(used)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
