"""The type of a vector, and the names of dtypes."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@lru_cache(maxsize=64)
def dtype_name(dtype: object) -> str:
    """Return the name of a numpy or torch dtype, such as ``"float32"``.  Cached, for numpy builds the text in every call."""
    return str(dtype).removeprefix("torch.")
