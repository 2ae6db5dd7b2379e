"""Quantized networks: weights and activations of few bits in the forward pass, latent weights in float32."""

from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from fedcomp.core import check_bool, check_choice, check_int
from fedcomp.training.hidden_states import changed_states
from fedcomp.training.layer_inputs import changed_inputs, matrix_layers
from fedcomp.training.model_checks import check_norms_are_free, named_modules
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors
from fedcomp.training.straight_through import matrices, straight_through, with_used

MAX_BITS = 8
TERNARY_THRESHOLD = 0.7
"""A latent weight below this multiple of its layer's mean magnitude becomes 0 (Li et al., arXiv 1605.04711, eq. 6)."""
FITTED_BITS = (2, 3)
"""With a factor of the layer, weights of these bits have values without 0 that are fitted to the weights."""
ALTERNATIONS = 4
"""How often the values are fitted and one is chosen for each weight; further times hardly reduce the error."""
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)


class Quantized(Step):
    """Calls the model with quantized weights, its layers with quantized inputs, and recurrent layers with quantized states."""

    recomputable = False

    def __init__(
        self,
        bits: int | str,
        activations: int,
        scale: str,
        signed: bool,
        hidden: int,
        model: nn.Module,
        _kept: Tensors,
        _generator: Generator,
    ) -> None:
        self._names = set(matrices(model, "quantized"))
        check_norms_are_free(model, self._names, "quantized")
        self._bits, self._activations, self._scaled, self._signed = bits, activations, scale == "layer", signed
        self._latent = [weight for name, weight in model.named_parameters() if name in self._names]
        self._layers = matrix_layers(model) if activations else []
        if activations and len(self._layers) < 2:
            raise ValueError("activations are the inputs of layers after the first; the model has no second layer")
        self._hidden, self._recurrent = hidden, _recurrent_layers(model) if hidden else []

    def weights(self, weights: Tensors) -> Tensors:
        """Return the weights with the matrices quantized; biases are unchanged."""
        return with_used(weights, self._names, partial(quantize_weight, bits=self._bits, scaled=self._scaled))

    def forward(self) -> AbstractContextManager[object]:
        """Return a context in which all layers but the first get quantized inputs, and recurrent layers quantize states.

        The first layer is the one that is called first in this context: a model may register its layers in another order.
        """
        called: list[nn.Module] = []

        def rounded(layer: nn.Module, x: Tensor) -> Tensor:
            called.append(layer)
            return x if layer is called[0] else quantize_activation(x, self._activations, signed=self._signed)

        with ExitStack() as stack:
            stack.enter_context(changed_inputs(self._layers, rounded))
            for layer in self._recurrent:
                signed = layer.mode != "RNN_RELU"  # the other modes end in tanh, or in means of tanh
                change = partial(quantize_activation, bits=self._hidden, signed=signed)
                stack.enter_context(changed_states([layer], change))
            return stack.pop_all()

    @torch.no_grad()
    def stepped(self) -> None:
        """Keep latent weights without a scale in [-1, 1]: beyond this range they would not change the quantized weights."""
        if not self._scaled:
            for weight in self._latent:
                weight.clamp_(-1, 1)


def quantize_weight(weight: Tensor, bits: int | str, *, scaled: bool) -> Tensor:
    """Return the quantized weights of a layer's call.

    Without a scale they are in [-1, 1]: the sign for ``"binary"``; -1, 0 and 1 for ``"ternary"``, split at magnitude 1/2; and
    multiples of 2^(1 - bits), from -1 to 1 - 2^(1 - bits), for 2 to 8 `bits`.

    With a scale, they are multiplied by a factor of the layer: the mean magnitude of the weights that do not become 0, or for
    4 to 8 `bits` the largest magnitude.  For 2 and 3 `bits` they are odd multiples of half a step, fitted to the weights, or
    the ternary values if these are nearer.
    """
    magnitude = weight.abs()
    if bits == "binary":
        signs = torch.where(weight >= 0, 1.0, -1.0)
        return signs * magnitude.mean() if scaled else signs
    if bits == "ternary":
        kept = magnitude > (TERNARY_THRESHOLD * magnitude.mean() if scaled else 0.5)
        signs = torch.where(kept, weight.sign(), torch.zeros_like(weight))
        return signs * (magnitude * kept).sum() / kept.sum().clamp(min=1) if scaled else signs
    levels = 2 ** (int(bits) - 1)
    if scaled and bits in FITTED_BITS:
        fitted, ternary = _fitted(weight, levels), quantize_weight(weight, "ternary", scaled=True)
        is_nearer = (fitted - weight).square().sum() <= (ternary - weight).square().sum()
        return torch.where(is_nearer, fitted, ternary)
    factor = magnitude.max() if scaled else magnitude.new_ones(())
    steps = torch.round(weight / factor.clamp(min=torch.finfo(weight.dtype).tiny) * levels)
    quantized_weight: Tensor = steps.clamp(-levels, levels - 1) / levels * factor
    return quantized_weight


def _fitted(weight: Tensor, levels: int) -> Tensor:
    """Return the nearest of 2 `levels` odd multiples of half a step; step and choices are fitted in turns."""
    tiny = torch.finfo(weight.dtype).tiny

    def nearest(step: Tensor) -> Tensor:
        return torch.floor(weight / step.clamp(min=tiny)).clamp_(-levels, levels - 1).add_(0.5)

    step = 2 / levels * weight.abs().mean()
    for _ in range(ALTERNATIONS):
        places = nearest(step)
        step = (weight * places).sum() / places.square().sum()
    return nearest(step) * step


def _recurrent_layers(model: nn.Module) -> list[nn.RNNBase]:
    """Return the recurrent layers; raise `ValueError` if there are none, or one has projections or its own `forward`."""
    layers = {name: layer for name, layer in named_modules(model).items() if isinstance(layer, nn.RNNBase)}
    if not layers:
        raise ValueError("hidden are the bits of the states of nn.LSTM, nn.GRU and nn.RNN; the model has none of them")
    forwards = [kind.forward for kind in RECURRENT]
    for name, layer in layers.items():
        if layer.proj_size or type(layer).forward not in forwards:
            raise ValueError(
                f"hidden quantizes the states of nn.LSTM, nn.GRU and nn.RNN; {name} has projections or another forward"
            )
    return list(layers.values())


def quantize_activation(x: Tensor, bits: int, *, signed: bool) -> Tensor:
    """Return `x` rounded to 2^bits evenly spaced values in [0, 1], or if `signed` to multiples of 2^(1 - bits).

    The multiples go from -1 to 1 - 2^(1 - bits), and include 0.  With one signed bit, the values are -1 below 0, and 1
    otherwise.  The gradient passes where `x` is in [0, 1], or in [-1, 1] if `signed` (Zhou et al., arXiv 1606.06160, section
    2.3; for the sign and its gradient: Hubara et al., JMLR 2018, eq. 4).
    """
    inside = x.clamp(-1.0 if signed else 0.0, 1)
    values = inside.detach()
    if signed and bits == 1:
        return straight_through(inside, torch.where(values >= 0, 1.0, -1.0).to(values.dtype))
    if signed:
        levels = 2 ** (bits - 1)
        return straight_through(inside, torch.round(values * levels).clamp(-levels, levels - 1) / levels)
    return straight_through(inside, torch.round(values * (2**bits - 1)) / (2**bits - 1))


@register(
    "Hubara et al., JMLR 2018",
    "weights and activations of few bits",
    measured="Fashion-MNIST, CNN: 83.8 % ternary, 80.1 % binary, 86.1 % float32",
    inference=True,
)
def quantized(
    bits: int | Literal["binary", "ternary"] = "binary",
    activations: int = 0,
    scale: Literal["layer", "none"] = "layer",
    signed: bool = False,
    hidden: int = 0,
) -> Begin:
    """Call the model with weight matrices of few bits, and train latent weights in float32 by straight-through gradients.

    `bits` are 2 to 8, ``"binary"`` or ``"ternary"``.

    Inputs of all layers but the one that is called first are rounded to `activations` bits, 1 to 8; with 0 they are unchanged.
    The range is [0, 1], for layers after ReLU, or with `signed` [-1, 1], for layers after tanh and LSTMs.  Inputs beyond the
    range become its ends.  Inputs of `nn.Bilinear` and of single cells, such as `nn.LSTMCell`, are unchanged.

    `hidden` are the bits, 0 to 8, of the hidden states of recurrent layers in each step.  Their range is [-1, 1], or [0, 1] for
    layers with ReLU.  Cell states are unchanged.

    ``scale="none"`` gives the paper's weights in [-1, 1], for models with batch normalization.  Other models need a factor for
    each layer (``"layer"``; Rastegari et al., ECCV 2016, eq. 6, for binary weights).

    A node sends changes of latent weights.  Hubara et al., JMLR 2018.
    """
    if isinstance(bits, str):
        check_choice("bits", bits, ("binary", "ternary"))
    else:
        check_int("bits", bits, 2, MAX_BITS)
    check_int("activations", activations, 0, MAX_BITS)
    check_int("hidden", hidden, 0, MAX_BITS)
    check_choice("scale", scale, ("layer", "none"))
    check_bool("signed", signed)
    return partial(Quantized, bits, activations, scale, signed, hidden)
