"""Selection and addition in torch, on the device of the tensors: only the kept entries cross to the host.

The kept entries, their order and every float are those of the numpy path, so the body is the same to the byte.
torch is imported when a tensor arrives, and at no other time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, Vector, writeable
from fedcomp.errors import NonFiniteError
from fedcomp.quantized import Indices, QuantizedVector


def top_k(value: CompensatedUpdate, k: int) -> tuple[Indices, Vector]:
    """Return (indices, entries) of the min(k, non-zeros) entries of largest magnitude, indices ascending, on the host."""
    import torch

    whole: Any = 0.0
    for part, weight in value.terms:
        whole = whole + (part if weight == 1 else part * weight)
    if value.bounded and all(bool(torch.isfinite(part).all()) for part, _ in value.terms):
        whole = torch.nan_to_num(whole, nan=0.0, posinf=MAX_FLOAT32, neginf=-MAX_FLOAT32)
    magnitude = whole.abs()
    if not bool(torch.isfinite(magnitude).all()):
        index = int(torch.nonzero(~torch.isfinite(magnitude))[0])
        raise NonFiniteError(value.origin + index, float(whole[index]))
    least = torch.topk(magnitude, min(k, value.n), sorted=False).values.min()
    keep = torch.nonzero(magnitude > least).ravel()
    if least > 0 and keep.numel() < k:
        ties = torch.nonzero(magnitude == least).ravel()[: k - keep.numel()]
        keep = torch.cat([keep, ties]).sort().values
    return keep.cpu().numpy(), whole[keep].cpu().numpy()


def to_device(array: Any, tensor: Any) -> Any:
    """Return `array`, of numpy or torch, as a tensor on the device of `tensor`; a read-only array is copied.

    torch would write to the memory of such an array, or end the process where it is mapped from a file.
    """
    import torch

    return torch.as_tensor(writeable(array)).to(tensor.device)


def join(tensors: Sequence[Any]) -> Any:
    """Return the tensors joined in order, on their device."""
    import torch

    return torch.cat(list(tensors))


def any_in(tensor: Any, parts: Sequence[slice]) -> NDArray[np.bool_]:
    """Return for each of the `parts` whether `tensor` has a nonzero entry there, bool (k,), in one copy to the host."""
    import torch

    if not parts:
        return np.zeros(0, np.bool_)
    found: NDArray[np.bool_] = torch.stack([tensor[part].any() for part in parts]).cpu().numpy()
    return found


def add(tensor: Any, quantized: QuantizedVector, weight: float) -> None:
    """Add ``weight`` times `quantized` to `tensor` (n,), in place; of a sparse vector only the kept entries are copied."""
    sparse = quantized.sparse()
    values = quantized.dense() if sparse is None else sparse.values
    addend = to_device(np.multiply(values, weight, dtype=np.float32), tensor)
    if sparse is None:
        tensor += addend
    else:
        tensor[to_device(sparse.indices, tensor)] += addend


def subtract(tensors: Sequence[Any], vector: Vector, dtypes: Sequence[str]) -> tuple[Any, NDArray[np.bool_]]:
    """Return floating `tensors`, joined in order, minus `vector`, float32 (n,) on their device, and flags of what is finite.

    The entries of `vector` are first rounded to the `dtypes` of their tensors, such as "float16".  The flags, bool (k, 2),
    say whether each tensor is finite, and whether its part of the difference is finite.
    """
    import torch

    difference: Any = tensors[0].new_empty(vector.size, dtype=torch.float32)
    flags: list[Any] = []
    start = 0
    for tensor, dtype in zip(tensors, dtypes, strict=True):
        values = tensor.detach().reshape(-1)
        part = slice(start, start + values.numel())
        subtrahend = to_device(vector[part], values)
        if (held := getattr(torch, dtype)).itemsize < 4:
            subtrahend = subtrahend.to(held)
        wide = torch.promote_types(values.dtype, torch.float32)
        difference[part] = values.to(wide) - subtrahend.to(wide)
        flags += [torch.isfinite(values).all(), torch.isfinite(difference[part]).all()]
        start = part.stop
    finite: NDArray[np.bool_] = torch.stack(flags).cpu().numpy()
    return difference, finite.reshape(-1, 2)


def bfloat16_words(tensor: Any) -> NDArray[np.int16]:
    """Return the bits of a bfloat16 tensor, in its shape, on the host."""
    import torch

    words: NDArray[np.int16] = tensor.detach().cpu().contiguous().view(torch.int16).numpy()
    return words
