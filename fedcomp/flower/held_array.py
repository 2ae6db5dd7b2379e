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


class HeldArray(Array):
    """An Array that is a numpy array still: it becomes bytes only if somebody asks for them."""

    held: NDArray[Any]

    def __init__(self, array: NDArray[Any]) -> None:
        """Keep a copy of `array`."""
        self.__dict__["held"] = np.array(array)
        self.__dict__.update(dtype=str(array.dtype), shape=array.shape, stype=SType.NUMPY)

    def __getattr__(self, name: str) -> Any:
        """Return the bytes, made now; everything else is there."""
        if name != "data":
            raise AttributeError(name)
        self.__dict__["data"] = data = Array(self.held).data
        return data

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the array, the caller's own."""
        own: NDArray[Any] = self.held.copy()
        return own


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return named arrays as Flower sends them; they are copied, and become bytes where they are sent."""
    return record_of({name: HeldArray(array) for name, array in arrays.items()})


def record_of(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record of `arrays` themselves; its constructor would make each anew."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record
