"""Training in 8 bits: weights, activations and gradients of few values in the forward and the backward pass."""

from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from fedcomp.core import check_choice, check_int
from fedcomp.training.layer_inputs import changed_inputs, matrix_layers
from fedcomp.training.model_checks import check_norms_are_free
from fedcomp.training.plan import Begin
from fedcomp.training.range_norm import BATCH_NORMS, normalized_by_ranges
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors
from fedcomp.training.straight_through import matrices, straight_through, with_used

VECTOR_LAYERS = (nn.Linear, nn.RNNBase, nn.MultiheadAttention)
"""Layers whose inputs are vectors along the last dimension; the inputs of other layers are samples along the first."""
WHOLE_LAYERS = (nn.RNNBase, nn.MultiheadAttention)
"""Layers within which gradients stay float32."""


class LowPrecision(Step):
    """Calls layers with weights and inputs of few values, and rounds the gradients of their outputs to few values."""

    recomputable = False

    def __init__(self, bits: int, normalization: str, model: nn.Module, _kept: Tensors, generator: Generator) -> None:
        self._names, self._bits = set(matrices(model, "low_precision")), bits
        check_norms_are_free(model, self._names, "low_precision")
        self._by_range = normalization == "range"
        self._norms = [module for module in model.modules() if isinstance(module, BATCH_NORMS)]
        self._layers = [*matrix_layers(model), *self._norms]
        self._noise = _Noise(generator)

    def weights(self, weights: Tensors) -> Tensors:
        """Return the weights with the matrices rounded; biases and factors of normalization are unchanged."""
        return with_used(weights, self._names, partial(uniform, bits=self._bits))

    def forward(self) -> AbstractContextManager[object]:
        """Return a context in which layers get rounded inputs, and rounded gradients of their outputs."""
        with ExitStack() as stack:
            stack.enter_context(changed_inputs(self._layers, self._rounded))
            for layer in self._layers:
                if not isinstance(layer, WHOLE_LAYERS):
                    stack.callback(layer.register_forward_hook(self._round_gradient).remove)
            if self._by_range:
                stack.enter_context(normalized_by_ranges(self._norms))
            return stack.pop_all()

    def _rounded(self, layer: nn.Module, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        dims = (-1,) if isinstance(layer, VECTOR_LAYERS) else tuple(range(1, x.dim()))
        return straight_through(x, uniform(x.detach(), self._bits, dims))

    def _round_gradient(self, _layer: nn.Module, _inputs: tuple[Any, ...], outputs: Tensor) -> None:
        def rounded(gradient: Tensor) -> Tensor:
            return uniform(gradient, self._bits, noise=self._noise.like(gradient))

        if outputs.requires_grad:
            outputs.register_hook(rounded)  # type: ignore[no-untyped-call]


def uniform(x: Tensor, bits: int, dims: tuple[int, ...] = (), noise: Tensor | None = None) -> Tensor:
    """Return `x` rounded to 2^bits evenly spaced values, from its smallest to its largest entry along `dims` (all by default).

    `noise` of the same shape, in [0, 1), makes the rounding stochastic and unbiased.
    """
    if not x.numel():
        return x
    values = x.float()
    dims = dims or tuple(range(x.dim()))
    low, high = values.amin(dims, keepdim=True), values.amax(dims, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp(min=torch.finfo(torch.float32).tiny)
    steps = (values - low) / step
    steps = steps.round_() if noise is None else steps.add_(noise).floor_().clamp_(max=2**bits - 1)
    rounded: Tensor = steps.mul_(step).add_(low).to(x.dtype)
    return rounded


class _Noise:
    """Uniform random numbers on any device, determined by the seed of a generator on the CPU."""

    def __init__(self, generator: Generator) -> None:
        self._seed = int(torch.randint(2**62, (), generator=generator))
        self._generators: dict[torch.device, Generator] = {}

    def like(self, x: Tensor) -> Tensor:
        """Return new numbers in [0, 1), float32, of the shape and the device of `x`."""
        if x.device not in self._generators:
            self._generators[x.device] = Generator(x.device).manual_seed(self._seed)
        return torch.empty_like(x, dtype=torch.float32).uniform_(generator=self._generators[x.device])


@register(
    "Banner et al., NeurIPS 2018; Aketi, Kodge and Roy, Neural Networks 155, 2022",
    "weights, activations and gradients of 8 bits",
    measured="Fashion-MNIST, CNN, eight nodes on a ring: 84.7 % as in float32, and 82.6 % with skew 0.8, as in float32",
    inference=True,
)
def low_precision(bits: int = 8, normalization: Literal["range", "batch"] = "range") -> Begin:
    """Round weights, inputs of layers and the gradients of their outputs to 2^bits values each, 2 to 8 bits.

    The values are evenly spaced between the smallest and the largest entry of a weight matrix, of the input of one sample, or
    of the gradient of a batch.  Gradients are rounded stochastically; weights and inputs are rounded to the nearest value, with
    straight-through gradients.  Gradients within recurrent layers and attention stay float32, and so do biases and the
    weights that the optimizer changes.  `nn.Bilinear` and single cells, such as `nn.LSTMCell`, get rounded weights only.

    Batch normalization divides by the range of its inputs (`normalization="range"`), or by their deviation (``"batch"``).
    torch computes with the rounded values in float32.

    A node sends changes of the float32 weights.  Banner et al., NeurIPS 2018; Aketi, Kodge and Roy, Neural Networks 155, 2022.
    """
    check_int("bits", bits, 2, 8)
    check_choice("normalization", normalization, ("range", "batch"))
    return partial(LowPrecision, bits, normalization)
