"""The GRADIENT frame: the gradient of the loss with respect to the activations of a batch, compressed without a memory."""

from collections.abc import Sequence

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.errors import CorruptError, LayoutError, VersionError
from fedcomp.split.activations import activation_layout, decode, encode
from fedcomp.wire import Frame, Kind


def write_gradient(
    gradient: Vector,
    compressor: Compressor,
    *,
    shape: Sequence[int] | None = None,
    number: int = 0,
    round_number: int = 0,
    seed: int = 0,
) -> Frame:
    """Return the frame of `gradient`, float32 (B, F), for the activations that answered message `number`.

    `shape` is the shape of one activation, (F,) if it is left out.  Raises `DivergedError` for a gradient that is not finite.
    """
    codec, body = encode(gradient.ravel(), compressor, seed)
    layout = activation_layout(gradient.shape[1:] if shape is None else shape)
    return Frame(Kind.GRADIENT, codec, 0, round_number, round_number, layout.digest, 0, number, body)


def read_gradient(frame: Frame, count: int, shape: Sequence[int], number: int) -> Vector:
    """Return the gradient for the `count` activations that answered message `number`, float32 (count, F).

    Raises `VersionError` for the gradient of another batch, and `FedcompError` for damage.
    """
    if frame.kind is not Kind.GRADIENT or frame.flags:
        raise CorruptError(f"a frame of kind {frame.kind.name} with the flags {frame.flags:#x}; GRADIENT is needed")
    layout = activation_layout(shape)
    if frame.layout != layout.digest:
        raise LayoutError(
            f"the gradient of another shape than {tuple(shape)}; both ends cut the model at the same layer"
        )
    if frame.after != number:
        raise VersionError(f"the gradient of the answer to message {frame.after}; that of {number} is needed")
    gradient = decode(frame.codec, frame.payload, count * layout.n).reshape(count, layout.n)
    if not np.isfinite(gradient).all():
        raise CorruptError("a gradient that is not finite; finite ones are needed")
    return gradient
