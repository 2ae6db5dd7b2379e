"""The dtypes of tensors: their names, torch's arrays as numpy's, and bfloat16, which numpy has not."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.backends import torch_backend
from fedcomp.core import dtype_name, is_numpy

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""A bfloat16 number: the upper 16 bits of a float32.  numpy has no such dtype, and Flower refuses torch tensors of it.

From torch and back, with words as a numpy array:

    words = tensor.view(torch.int16).numpy().view(BFLOAT16)
    tensor = torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)
"""
FLOATS = ("bfloat16", "float16", "float32", "float64")
COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Complex dtypes; each entry travels as two numbers of the other dtype, the real part first."""
DTYPES = (*FLOATS, *COMPLEX, "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
"""The dtypes that can travel, by the names that a layout gives them."""


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is `BFLOAT16`, or the dtype "bfloat16" that the package ml_dtypes adds to numpy."""
    return dtype == BFLOAT16 or str(dtype) == "bfloat16"


def dtype_of(array: Any) -> str:
    """Return the name of the dtype of a numpy array or a torch tensor, one of `DTYPES` if it can travel."""
    if not is_numpy(array):
        return dtype_name(array.dtype)
    return "bfloat16" if is_bfloat16(array.dtype) else dtype_name(array.dtype.newbyteorder("="))


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array, or a torch tensor from any device, as a numpy array; nothing on the host is copied."""
    if is_numpy(array) or not hasattr(array, "detach"):
        return np.asarray(array)
    if dtype_of(array) == "bfloat16":
        return torch_backend.bfloat16_words(array).view(BFLOAT16)
    return np.asarray(array.detach().cpu().resolve_conj().resolve_neg().numpy())


def bfloat16_to_float32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return the values of a bfloat16 array, exactly."""
    words: NDArray[np.uint32] = array.view("<u2").astype(np.uint32)
    words <<= np.uint32(16)
    return words.view(np.float32)


def float32_to_bfloat16(values: NDArray[np.float32]) -> NDArray[Any]:
    """Return finite `values` as an array of `BFLOAT16`, rounded to the nearest, ties to even; overflow gives infinity."""
    words: NDArray[np.uint32] = np.array(values, np.float32).view(np.uint32)
    words += ((words >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    words >>= np.uint32(16)
    return words.astype("<u2").view(BFLOAT16)
