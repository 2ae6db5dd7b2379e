"""Plain arrays that stay arrays until somebody asks for their bytes.

Flower's ``Array`` writes its bytes when it is made, and reads them when they are used.  Between a ClientApp and the mod in
the same process that is a copy, a file format and a copy back, twice a message, for nothing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.constant import SType
from numpy.typing import NDArray

from fedcomp.core import dtype_name

FIELDS = ("dtype", "shape", "stype", "data")


class LazyArray(Array):
    """An Array that is a numpy array still: it becomes bytes only if somebody asks for them.

    To all others it is an Array: it compares as one, arrives as one, and is one once a field of it is set.
    """

    held: NDArray[Any]

    def __init__(self, array: NDArray[Any]) -> None:
        """Hold `array` itself; nobody may write to it from here on."""
        self.__dict__["held"] = array
        self.__dict__.update(dtype=dtype_name(array.dtype), shape=array.shape, stype=SType.NUMPY)

    def __getattr__(self, name: str) -> Any:
        """Return the bytes, made now; everything else is there."""
        if name != "data":
            raise AttributeError(name)
        self.__dict__["data"] = data = Array(self.held).data
        return data

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, and be a plain Array from here on."""
        if name in FIELDS:
            self.__dict__["data"] = self.data
            del self.__dict__["held"]
            self.__class__ = Array  # type: ignore[assignment]
        Array.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        """Say whether `other` is an Array with the same fields."""
        if not isinstance(other, Array):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    __hash__ = None  # type: ignore[assignment]  # as an Array has none

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a plain Array."""
        return Array, tuple(getattr(self, name) for name in FIELDS)

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the array, the caller's own."""
        own: NDArray[Any] = self.held.copy()
        return own


LazyArray.__qualname__ = "Array"  # the name that Flower writes before the bytes, and looks up where they arrive


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return named arrays as Flower sends them; they are copied, and become bytes where they are sent."""
    return record_of({name: LazyArray(np.array(array)) for name, array in arrays.items()})


def record_of(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record of `arrays` themselves; its constructor would make each anew."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record
