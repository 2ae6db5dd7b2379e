"""A trained model in few bytes: weights of few values as codes, and sparse weights without their zeros."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_VALUES = 256
"""A tensor or row with more different values is not stored as codes."""

Packed = dict[str, NDArray[np.generic]]


def pack(weights: Mapping[str, Tensor]) -> Packed:
    """Return arrays from which `unpack` restores the `weights` exactly, in the fewest bytes of four forms.

    The forms of a float32 tensor are:

    * unchanged, under its name;
    * ``name/shape`` with ``name/values`` (rows, k) and ``name/codes``: a code of ceil(log2 k) bits chooses the value of an
      entry.  There is one row for the whole tensor, or one for each index of its first axis;
    * ``name/shape`` with ``name/mask``, a bit for each entry, and ``name/nonzero``, the values of the nonzero entries.

    Tensors of other dtypes are unchanged.  A restored zero has no sign.  ``numpy.savez`` writes the result to a file.

    Raises `ValueError` for a name with a slash, for a sparse tensor, and for a dtype that numpy lacks, such as bfloat16.
    """
    packed: Packed = {}
    for name, tensor in weights.items():
        if "/" in name:
            raise ValueError(f"a tensor's name is {name!r}; one without a slash is needed")
        if tensor.layout != torch.strided:
            raise ValueError(
                f"{name} has the layout {tensor.layout}; a dense tensor is needed, as to_dense() returns it"
            )
        try:
            array = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise ValueError(f"{name} has {tensor.dtype}, which numpy lacks; float32 is needed") from None
        forms: list[Packed] = []
        if tensor.dtype == torch.float32 and array.size:
            forms = [_sparse(array), *(_coded(array, rows) for rows in {1, len(array) if array.ndim else 1})]
        smallest = min((form for form in forms if form), key=_size, default=None)
        if smallest is not None and _size(smallest) < array.nbytes:
            packed |= {
                f"{name}/shape": np.array(array.shape),
                **{f"{name}/{key}": part for key, part in smallest.items()},
            }
        else:
            packed[name] = array
    return packed


def unpack(packed: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    """Return the tensors that `pack` stored, by name; `packed` may be the result of ``numpy.load`` for an .npz file."""
    weights: dict[str, Tensor] = {}
    for key in packed:
        name, _, part = key.partition("/")
        if part not in ("", "shape"):
            continue
        array = packed[key] if not part else _restored(packed, name, tuple(map(int, packed[key])))
        weights[name] = torch.from_numpy(np.array(array))
    return weights


def _sparse(array: NDArray[np.float32]) -> Packed:
    mask = array != 0
    return {"mask": np.packbits(mask), "nonzero": array[mask]}


def _coded(array: NDArray[np.float32], rows: int) -> Packed:
    """Return the values of each row and the codes of its entries; nothing for too many values."""
    found = [np.unique(row, return_inverse=True) for row in array.reshape(rows, -1)]
    most = max(len(values) for values, _ in found)
    if most > MAX_VALUES:
        return {}
    table = np.zeros((rows, most), np.float32)
    for row, (values, _) in zip(table, found, strict=True):
        row[: len(values)] = values
    codes = np.stack([inverse.ravel() for _, inverse in found])
    return {"values": table, "codes": np.packbits(codes[..., None] >> _places(most) & 1)}


def _restored(packed: Mapping[str, NDArray[np.generic]], name: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    count = int(np.prod(shape))
    if f"{name}/mask" in packed:
        array = np.zeros(count, np.float32)
        array[np.unpackbits(packed[f"{name}/mask"].astype(np.uint8), count=count).astype(np.bool_)] = packed[
            f"{name}/nonzero"
        ]
        return array.reshape(shape)
    table = packed[f"{name}/values"]
    places = _places(table.shape[1])
    bits = np.unpackbits(packed[f"{name}/codes"].astype(np.uint8), count=count * len(places)).reshape(
        count, len(places)
    )
    codes = (bits.astype(np.int64) << places).sum(1).reshape(len(table), -1)
    return np.take_along_axis(table, codes, 1).reshape(shape)


def _places(values: int) -> NDArray[np.int64]:
    """Return the places of the bits of a code for `values` values, the most significant first."""
    return np.arange((values - 1).bit_length())[::-1]


def _size(form: Packed) -> int:
    return sum(part.nbytes for part in form.values())
