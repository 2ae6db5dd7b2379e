"""bfloat16 arrays without a numpy dtype of that name: the words, and their conversion from and to float32 by bit operations.

numpy has no bfloat16, and Flower refuses torch tensors of it.  An array of `BFLOAT16` holds the words as they are.
From torch and back, with words as a numpy array:

    words = tensor.view(torch.int16).numpy().view(BFLOAT16)
    tensor = torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""A bfloat16 number: the upper 16 bits of a float32."""


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is `BFLOAT16`, or the dtype of that name that the package ml_dtypes adds to numpy."""
    return dtype == BFLOAT16 or str(dtype) == "bfloat16"


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
