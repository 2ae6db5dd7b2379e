"""Activation compression: autograd saves activations as error-bounded codes of few bits until the backward pass."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from fedcomp.core import check_int, check_range
from fedcomp.training.activation_codes import ChosenEntries, Codes, chunks, encode, norm, statistics
from fedcomp.training.bit_packing import pack_bits, unpack_bits
from fedcomp.training.model_checks import check_not_compiled, check_weights_are_parameters
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.saved_inputs import (
    Call,
    Restore,
    exact,
    modules_of,
    replacing,
    same_storage,
    trained_layers,
    version,
)
from fedcomp.training.step import Step, Tensors

MIN_ENTRIES = 1024
"""Smaller tensors are saved unchanged."""
MAX_INTERVAL = 10**6
FIRST_BOUND = math.sqrt(6 / math.pi) / 4
"""The bound before the first measurement, divided by `error` and by the root mean square of nonzero inputs.

If loss gradients and inputs are independent, the mean magnitude of the weight's gradient is sqrt(2 / pi) sqrt(R sum g^2 / O)
times this root mean square, and sqrt(6 / pi) fits the model.  If the loss gradients cancel, it is less, hence a quarter.
"""
MAX_COARSENESS = 1 / 4
"""The largest bound, in multiples of the same root mean square: the errors of coarser codes are not uniform."""
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
"""Their gradients depend only on the shape of the input, and for max pools on the indices."""
RELUS = frozenset({functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
"""The names under which ReLU is called; its gradient depends only on the signs of its output."""


@dataclass(slots=True)
class Saved:
    """The saved forms of the entries of one tensor; `storage` ensures that its address is not used again."""

    storage: StorageWeakRef
    exact: bool = False
    nonzero: ChosenEntries | None = None
    codes: Codes | None = None


@dataclass(slots=True)
class LayerStatistics:
    """The measurements of a layer in one step that the error model needs."""

    variances: list[Tensor]
    """R / 3 sum g^2 / O of each call: the variance of the gradient's error over the squared bound."""
    gradient: Tensor | None = None
    """The mean magnitude of the weight's gradient."""
    nonzero: float = 0.0
    """R of the current call: the share of nonzero inputs; 0 if the input is saved unchanged."""


class ReluCalls(TorchFunctionMode):
    """A context in which `is_called` says whether ReLU is being called, so that it is ReLU that saves a tensor."""

    is_called = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch."""
        self.is_called = func in RELUS
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.is_called = False


class ActivationCompression(Step):
    """Saves the inputs of layers as codes, with one error bound for each layer."""

    def __init__(
        self, error: float, interval: int, model: nn.Module, kept: Tensors, _generator: torch.Generator
    ) -> None:
        self._error, self._interval = error, interval
        check_not_compiled(model, "activation_compression")
        check_weights_are_parameters(model, "activation_compression")
        self._layers = trained_layers(model)
        if not self._layers:
            raise ValueError(
                "activation_compression() compresses the inputs of convolutions and linear layers; the model trains none"
            )
        self._pools = modules_of(model, POOLS)
        self._relus = ReluCalls()
        bounds = [float(bound) for bound in kept["bounds"]] if kept else []
        self._bounds = dict(zip(self._layers, bounds, strict=True)) if len(bounds) == len(self._layers) else {}
        self._steps = 0
        self._saved: dict[tuple[int, ...], Saved] = {}
        self._measured: dict[str, LayerStatistics] = {}
        self._handles: list[RemovableHandle] = []

    @contextmanager
    def forward(self) -> Generator[None]:
        """Enter the context in which autograd saves codes; every `interval` steps, the layers are also measured."""
        self._forget()
        measuring = self._steps % self._interval == 0
        called = self._called if measuring else None
        with self._relus, replacing({**self._layers, **self._pools}, self._save, called):
            yield

    def loss(self, loss: Tensor) -> Tensor:
        """Return `loss`; from here on only autograd holds the codes, and frees a layer's codes when it has passed the layer."""
        self._saved.clear()
        return loss

    def gradients(self) -> bool:
        """Choose the bounds by the measurements of the step."""
        self._steps += 1
        for name, measured in self._measured.items():
            bound = error_bound(self._error, measured)
            if bound:
                self._bounds[name] = bound
        self._forget()
        return True

    def end(self) -> Tensors:
        """Return the bound of each layer, 0 for layers that have not been measured."""
        self._forget()
        return {"bounds": torch.tensor([self._bounds.get(name, 0.0) for name in self._layers], dtype=torch.float64)}

    def _forget(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._saved.clear()
        self._measured.clear()

    def _save(self, tensor: Tensor, call: Call | None) -> Restore:
        """Return the function that restores a saved tensor: from codes, from a bitmap, from its shape, or unchanged."""
        if tensor.numel() < MIN_ENTRIES or not _is_dense(tensor):
            return exact(tensor)
        if call is not None and call.name in self._pools:
            return _save_of_pool(tensor, call)
        if not tensor.requires_grad or not tensor.is_floating_point():
            return exact(tensor)  # for example a sample, which the caller holds in any case
        storage: Any = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        content = (storage.cdata, int(tensor.storage_offset()), tensor.numel(), version(tensor))
        first = content not in self._saved
        saved = self._saved.setdefault(content, Saved(storage))
        if call is not None and call.saves_input(tensor) and not saved.exact:
            return self._save_input(tensor, call.name, saved)
        # Of its output, ReLU needs only a bit per entry, whether it is above zero; others that save it may need the values.
        if first and call is None and self._relus.is_called:
            saved.nonzero = ChosenEntries.of((part <= 0).logical_not_() for part in chunks(_flat(tensor)))
            return partial(_ones_of, saved.nonzero, tensor.dtype, tensor.shape, tensor.stride())
        saved.exact = True
        return exact(tensor)

    def _save_input(self, tensor: Tensor, name: str, saved: Saved) -> Restore:
        flat = _flat(tensor)
        found = statistics(flat)
        bound = self._bounds.get(name) or FIRST_BOUND * self._error * found.rms
        bound = min(bound, MAX_COARSENESS * found.rms)
        if saved.codes is None or saved.codes.bound > bound:
            saved.codes = encode(flat, bound, found, saved.nonzero)
        if saved.codes is None:
            saved.exact = True
            return exact(tensor)
        self._measured.setdefault(name, LayerStatistics([])).nonzero = found.nonzero / len(flat)
        return partial(_restored, saved.codes, tensor.shape, tensor.stride())

    def _called(self, name: str, module: nn.Module, output: Tensor) -> None:
        """Measure the gradients of a layer's output and of its weight in the coming backward pass."""
        weight = getattr(module, "weight", None)
        if name not in self._layers or not output.requires_grad or not isinstance(weight, Tensor):
            return
        measured = self._measured.setdefault(name, LayerStatistics([]))
        factor, measured.nonzero = measured.nonzero / 3 / len(weight), 0.0

        def see_output(gradient: Tensor) -> None:
            measured.variances.append(factor * norm(gradient).square())

        def see_weight(gradient: Tensor) -> None:
            measured.gradient = gradient.abs().mean()

        for tensor, hook in ((output, see_output), (weight, see_weight)):
            handle = cast("RemovableHandle", tensor.register_hook(hook))  # type: ignore[no-untyped-call]
            self._handles.append(handle)


def error_bound(error: float, measured: LayerStatistics) -> float | None:
    """Return the bound with which the gradient's error has the standard deviation `error` times its mean magnitude.

    None if a measurement is missing, zero or not finite.
    """
    if measured.gradient is None or not measured.variances:
        return None
    variance = float(torch.stack(measured.variances).sum())
    bound = error * float(measured.gradient) / math.sqrt(variance) if variance > 0 else 0.0
    return bound if 0 < bound < math.inf else None


def _save_of_pool(tensor: Tensor, call: Call) -> Restore:
    in_order = tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
    if same_storage(tensor, call.x) and in_order and tensor.device.type in ("cpu", "cuda"):
        return partial(_without_entries, tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    if tensor.dtype == torch.int64:
        return _packed_indices(tensor)
    return exact(tensor)


def _without_entries(shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor without memory, of which only the shape can be used."""
    tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    tensor.untyped_storage().resize_(0)
    return tensor


def _packed_indices(tensor: Tensor) -> Restore:
    flat = _flat(tensor)
    least, most = (int(each) for each in flat.aminmax())
    if least < 0 or most >= 2**31:
        return exact(tensor)
    width, shape, strides = max(1, most.bit_length()), tensor.shape, tensor.stride()
    packed = [pack_bits(part, width) for part in chunks(flat)]

    def restore() -> Tensor:
        indices = torch.empty(shape.numel(), dtype=torch.int64, device=packed[0][0].device)
        for part, bits in zip(chunks(indices), packed, strict=True):
            part.copy_(unpack_bits(bits, width, len(part)))
        return indices.as_strided(shape, strides)

    return restore


def _ones_of(bitmap: ChosenEntries, dtype: torch.dtype, shape: torch.Size, strides: tuple[int, ...]) -> Tensor:
    return torch.cat([part.to(dtype) for part in bitmap]).as_strided(shape, strides)


def _restored(codes: Codes, shape: torch.Size, strides: tuple[int, ...]) -> Tensor:
    return codes.restore().as_strided(shape, strides)


def _flat(tensor: Tensor) -> Tensor:
    """Return the entries of a dense tensor in the order of its memory, without a copy."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the entries of a tensor fill a piece of memory without gaps, in any order of its dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return tensor.layout == torch.strided


@register(
    "Jin et al., VLDB 15(4) 2022",
    "activations in few bits until the backward pass",
    measured="cnn and vgg11s: 0.60 and 0.58 of a step's memory, 2.22 and 1.47 times its time",
    saving=True,
)
def activation_compression(error: float = 0.01, interval: int = 100) -> Begin:
    """Save the inputs of convolutions and linear layers for the backward pass as codes with a bounded error: less memory.

    A restored entry differs from x by at most the layer's bound eb, and has the sign of x; zeros stay zero.  If the errors are
    uniform in [-eb, eb], the gradient of a weight has an error of standard deviation

        sigma = eb sqrt(R / 3 sum g^2 / O)

    where R is the share of nonzero inputs, and g are the loss gradients at the layer's output, summed over samples, positions
    and the O output channels.  The paper writes it as a L sqrt(N R) eb (eq. 6).

    The bound makes sigma `error` times the mean magnitude of the weight's gradient.  (The paper takes the momentum instead of
    the gradient, but a plug-in does not see the momentum.)  The bound is determined by a measurement in the first step of a
    round and every `interval` steps after it, and is kept between rounds.  Before the first measurement, it is a quarter of
    the bound for loss gradients that do not depend on the inputs.

    ReLU saves a bit for each entry, and pooling modules save the shape of their input and packed indices: both without error.
    Everything else is saved unchanged: samples, weights, tensors below 1024 entries or with NaN or infinity, and the tensors of
    other operations, such as batch normalization, LSTMs, and other activation and pooling functions.
    `error` is above 0 and at most 1.  Jin et al. (Comet), VLDB 15(4) 2022.
    """
    check_range("error", error, above=0, most=1)
    check_int("interval", interval, 1, MAX_INTERVAL)
    return partial(ActivationCompression, error, interval)
