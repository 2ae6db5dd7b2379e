"""ZeroFL: layers of few weights and few saved inputs, and uploads with few weights."""

import math
from contextlib import AbstractContextManager
from functools import cache, partial
from logging import getLogger
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from fedcomp.core import check_choice, check_range
from fedcomp.training.model_checks import check_norms_are_free, check_not_compiled
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.saved_inputs import Call, Restore, exact, replacing, trained_layers
from fedcomp.training.step import Step, Tensors
from fedcomp.training.straight_through import matrices, with_used

UPLOADS = ("full", "weights", "diff-on-weights", "weights-diff")


class ZeroFL(Step):
    """Calls layers with their largest weights, computes weight gradients from their largest inputs, and masks the upload."""

    recomputable = False

    def __init__(
        self, sparsity: float, mask_ratio: float, upload: str, model: nn.Module, _kept: Tensors, _generator: Generator
    ) -> None:
        self._sparsity, self._upload = sparsity, upload
        self._kept_ratio = min(1.0, 1 - sparsity + mask_ratio)
        check_not_compiled(model, "zerofl")
        trained = set(matrices(model, "zerofl"))
        self._layers = trained_layers(model)
        first = next((layer.weight for layer in self._layers.values()), None)
        self._sparse = {name: layer for name, layer in self._layers.items() if layer.weight is not first}
        # A tied weight has one name among the parameters, which may be the name in another module.
        sparse_weights = {id(layer.weight) for layer in self._sparse.values()}
        self._names = {name for name, weight in model.named_parameters() if id(weight) in sparse_weights}
        check_norms_are_free(model, self._names, "zerofl")
        if not self._sparse:
            raise ValueError(
                "zerofl() makes convolutions and linear layers after the first one sparse; the model has none that are trained"
            )
        self._weights = [weight for name, weight in model.named_parameters() if name in trained]
        self._starts = [weight.detach().clone() for weight in self._weights] if upload != "full" else []
        self._has_called = self._has_trained = False

    def weights(self, weights: Tensors) -> Tensors:
        """Return the weights with zeros for the smallest of each sparse layer; the gradient reaches all of them."""
        return with_used(weights, self._names, partial(largest, ratio=1 - self._sparsity))

    def forward(self) -> AbstractContextManager[object]:
        """Return a context in which sparse layers save their largest inputs only."""
        return replacing(self._layers if not self._has_called else self._sparse, self._save, self._called)

    def _called(self, name: str, _layer: nn.Module, _output: Tensor) -> None:
        if not self._has_called and name in self._sparse:
            log_order(next(iter(self._layers)), name)
        self._has_called = True

    def _save(self, tensor: Tensor, call: Call | None) -> Restore:
        if call is None or call.name not in self._sparse or not call.saves_input(tensor):
            return exact(tensor)
        sparse = largest(tensor.detach(), 1 - self._sparsity)
        return lambda: sparse

    def stepped(self) -> None:
        """Note that weights have changed, so that `end` has to mask them."""
        self._has_trained = True

    @torch.no_grad()
    def end(self) -> Tensors:
        """Keep only the uploaded part in the weights; a second call changes nothing."""
        if self._has_trained and self._upload != "full":
            for weight, start in zip(self._weights, self._starts, strict=True):
                chosen = keep_largest(weight - start if self._upload == "weights-diff" else weight, self._kept_ratio)
                others = torch.zeros_like(weight) if self._upload == "weights" else start
                weight.copy_(torch.where(chosen, weight, others))
        self._has_trained = False
        return {}


@cache  # one line for a model, not one for each round
def log_order(dense: str, called: str) -> None:
    """Log a line: the layer that stays dense is not the one that is called first."""
    getLogger("fedcomp").warning(
        "zerofl(): the first layer of the model, %s, stays dense, but %s is called before it, with few weights; build the"
        " layers in the order of their calls",
        dense,
        called,
    )


def keep_largest(tensor: Tensor, ratio: float) -> Tensor:
    """Return a mask, of the tensor's shape, of its ceil(ratio n) entries of largest magnitude."""
    count = min(tensor.numel(), max(1, math.ceil(round(ratio * tensor.numel(), 6))))  # 0.3 * 10 is 3, despite rounding
    mask = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
    mask[tensor.abs().flatten().topk(count, sorted=False).indices] = True
    return mask.view(tensor.shape)


def largest(tensor: Tensor, ratio: float) -> Tensor:
    """Return `tensor` with zeros in place of all but its ceil(ratio n) entries of largest magnitude."""
    return torch.where(keep_largest(tensor, ratio), tensor, torch.zeros_like(tensor))


@register(
    "Qiu et al., ICLR 2022",
    "sparse training and masked uploads",
    measured="Fashion-MNIST, CNN, 90 % zeros: 82.1 % with 9.3 times fewer bytes up; 86.1 % dense",
    inference=True,
    saving=True,
)
def zerofl(
    sparsity: float = 0.9,
    mask_ratio: float = 0.1,
    upload: Literal["full", "weights", "diff-on-weights", "weights-diff"] = "weights-diff",
) -> Begin:
    """Call layers with the largest ``1 - sparsity`` of their weights, and upload the largest ``1 - sparsity + mask_ratio``.

    Training follows SWAT (Raihan and Aamodt, NeurIPS 2020): weight gradients, which are dense, are computed from the largest
    ``1 - sparsity`` of a layer's inputs, and all weights are changed.  The first layer stays dense, in the order of the model's
    parameters; a line in the log names a layer that is called before it.  `sparsity` and `mask_ratio` are 0 to 1.

    `upload` decides what a node sends of each tensor.  ``"weights"``: the largest weights, with zeros for the others.
    ``"diff-on-weights"``: the changes of the largest weights.  ``"weights-diff"``: the largest changes.  ``"full"``: all
    changes.  Of biases, all changes are sent.  The uplink `topk(density=1.0, feedback=False)` sends exactly these changes.
    Qiu et al., ICLR 2022, section 3.2.
    """
    check_range("sparsity", sparsity, least=0, most=1)
    check_range("mask_ratio", mask_ratio, least=0, most=1)
    check_choice("upload", upload, UPLOADS)
    if sparsity == 1:
        raise ValueError("sparsity is 1; it is below 1: a layer without weights learns nothing")
    return partial(ZeroFL, sparsity, mask_ratio, upload)
