"""Mixed precision: forward and backward pass in 16 bits, weights and their updates in float32."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from logging import getLogger
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedcomp.core import check_choice
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors

FIRST_SCALE = 2.0**16
MAX_SCALE = 2.0**24
GROWTH_STEPS = 2000
"""After this number of steps without an overflow, the loss scale doubles."""
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class LossScale:
    """The factor of the loss that keeps small gradients within float16, always a power of two.

    It is halved at each overflow, down to 1, and doubled after `GROWTH_STEPS` steps without one, up to 2^24.
    """

    def __init__(self, scale: float = FIRST_SCALE, good_steps: int = 0) -> None:
        self.scale, self.good_steps = scale, good_steps

    def unscale(self, gradients: list[Tensor]) -> bool:
        """Divide the gradients by the scale, in place, and adapt the scale; return False if the scale made one overflow.

        At a scale of 1, NaN or infinity comes from the training itself, and reaches the weights as without a scale.
        """
        scaled = self.scale > 1
        for gradient in gradients:
            gradient.mul_(1 / self.scale)  # exact, as the scale is a power of two
        checks = [torch.isfinite(gradient).all() for gradient in gradients]
        finite = not checks or bool(torch.stack(checks).all())  # one answer from the device, not one for each tensor
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.scale = max(1.0, self.scale / 2)
        elif self.good_steps == GROWTH_STEPS:
            self.scale, self.good_steps = min(MAX_SCALE, 2 * self.scale), 0
        return finite or not scaled


class MixedPrecision(Step):
    """Calls the model under torch's autocast; with float16, scales the loss, and leaves out steps that overflow."""

    def __init__(self, dtype: torch.dtype, model: nn.Module, kept: Tensors) -> None:
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        wrong = {weight.dtype for weight in self._weights} - {torch.float32}
        if wrong:
            raise ValueError(f"mixed_precision() trains float32 weights; the model has {min(map(str, wrong))}")
        self._device, self._dtype = _device(model), dtype
        self._model, self._buffers = model, list[tuple[nn.Module, str, Tensor, Tensor]]()
        self._scale: LossScale | None = None
        if dtype == torch.float16:
            self._scale = LossScale(float(kept["scale"]), int(kept["good_steps"])) if kept else LossScale()

    def started(self) -> None:
        """Keep a copy of the buffers, such as the means of batch normalization, if the step may overflow."""
        if self._scale is not None:
            self._buffers = [
                (module, name, buffer, buffer.clone())
                for module in self._model.modules()
                for name, buffer in module.named_buffers(recurse=False)
            ]

    @contextmanager
    def forward(self) -> Generator[None]:
        """Enter torch's autocast: it chooses the operations that are safe in 16 bits, and casts the weights for them."""
        with torch.autocast(self._device, self._dtype), _without_onednn(self._device):
            yield

    def loss(self, loss: Tensor) -> Tensor:
        """Return the loss in float32, scaled."""
        loss = loss.float()
        return loss if self._scale is None else loss * self._scale.scale

    def gradients(self) -> bool:
        """Unscale the gradients, which are float32 like the weights; after an overflow, undo its traces and return False."""
        if self._scale is None:
            return True
        for weight in self._weights:
            if weight.grad is not None and weight.grad.is_sparse:
                weight.grad = weight.grad.coalesce()  # its values are then a separate tensor
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        finite = self._scale.unscale([each.values() if each.is_sparse else each for each in gradients])
        if not finite:
            for module, name, buffer, before in self._buffers:
                if getattr(module, name) is buffer:
                    buffer.copy_(before)
                else:
                    setattr(module, name, before)  # the module has put another tensor in its place
        return finite

    def end(self) -> Tensors:
        """Return the loss scale."""
        if self._scale is None:
            return {}
        return {"scale": torch.tensor(self._scale.scale), "good_steps": torch.tensor(self._scale.good_steps)}


@cache  # one line for a process, not one for each round
def log_emulation(device: str) -> None:
    """Log a line if this kind of device computes bfloat16 by float32 operations: then it saves only memory."""
    if device == "cuda":
        emulated = not torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # Older releases of torch do not say what the processor has.
        capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)() if device == "cpu" else {}
        emulated = bool(capabilities) and not any(has for name, has in capabilities.items() if "bf16" in name)
    if emulated:
        getLogger("fedcomp").warning(
            "mixed_precision(): this %s has no instructions for bfloat16, so steps take longer than in float32", device
        )


class OneDnnPause:
    """A context in which torch does not call oneDNN, in this process; it may be entered several times, also by threads.

    torch's setting holds for all threads: the first one that enters turns it off, and the last one that leaves restores it.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._enabled = Lock(), 0, True
        self._setting: Any = torch.backends.mkldnn

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._enabled = self._setting.enabled
                self._setting.enabled = False
            self._users += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._setting.enabled = self._enabled


_PAUSE = OneDnnPause()


def _without_onednn(device: str) -> AbstractContextManager[None]:
    """Keep torch from calling oneDNN where it has no bfloat16 for this processor: its LSTM would end with an error."""
    return nullcontext() if device != "cpu" or _onednn_has_bfloat16() else _PAUSE


@cache
def _onednn_has_bfloat16() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return True  # nothing to leave out
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001  # convolutions ask this, recurrent layers do not


def _device(model: nn.Module) -> str:
    return next((weight.device.type for weight in model.parameters()), "cpu")


@register(
    "Micikevicius et al., ICLR 2018",
    "forward and backward pass in 16 bits",
    measured="a processor with bfloat16, cnn and vgg11s: 0.77 and 0.58 of a step's time, 0.65 and 0.68 of its memory",
    rank=1,
)
def mixed_precision(dtype: Literal["bfloat16", "float16"] = "bfloat16") -> Begin:
    """Compute outputs and gradients with 16-bit operands, and keep weights, gradients and updates in float32.

    ``"float16"`` needs a GPU.  Its loss is scaled, at first by 2^16.  A step whose gradients overflow changes only the scale,
    and not the model, the optimizer or other plug-ins.  ``"bfloat16"`` has the range of float32 and needs no scale; it is slow
    on CPUs without instructions for it.  Micikevicius et al., ICLR 2018, sections 3.1 and 3.2.
    """
    check_choice("dtype", dtype, tuple(DTYPES))

    def begin(model: nn.Module, kept: Tensors, _generator: torch.Generator) -> Step:
        if dtype == "float16" and _device(model) == "cpu":
            raise ValueError("mixed_precision('float16') needs a GPU, and the model is on the CPU; use 'bfloat16'")
        if dtype == "bfloat16":
            log_emulation(_device(model))
        return MixedPrecision(DTYPES[dtype], model, kept)

    return begin
