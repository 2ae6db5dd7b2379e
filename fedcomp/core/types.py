"""The type of a vector, and what numpy and torch call by different names."""

from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@lru_cache(maxsize=64)
def dtype_name(dtype: object) -> str:
    """Return the name of a numpy or torch dtype, such as ``"float32"``.  Cached: numpy builds the text in every call."""
    return str(dtype).removeprefix("torch.")


def is_numpy(vector: object) -> TypeGuard[Vector]:
    """Return whether a vector is a numpy array; otherwise it is a torch tensor."""
    return isinstance(vector, np.ndarray)


def on_host(vector: Any) -> Vector:
    """Return the entries of a numpy vector or a torch tensor as a numpy vector, float32 (n,)."""
    return vector if is_numpy(vector) else np.asarray(vector.detach().cpu().numpy(), np.float32)


def writeable(vector: Any) -> Any:
    """Return `vector`, numpy or torch; a numpy array that is read-only is copied."""
    return np.array(vector) if is_numpy(vector) and not vector.flags.writeable else vector


def to_python(value: object) -> object:
    """Return a numpy scalar as a Python one, and any other value as it is."""
    scalar: Any = value
    return scalar.item() if isinstance(value, np.generic) else value


def use_python_numbers(settings: Any) -> None:
    """Replace the numpy scalars among the fields of a dataclass, frozen or not, by Python ones, which do not overflow."""
    for each in fields(settings):
        object.__setattr__(settings, each.name, to_python(getattr(settings, each.name)))
