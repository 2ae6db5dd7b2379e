"""Flower Arrays that make their bytes only when they are needed.

Flower's ``Array`` writes its bytes when it is made and parses them whenever it is read.  Between a ClientApp and a mod in
the same process that costs two copies and a file format for each message; and the messages of a round would each hold a copy
of the same key frame.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.common.constant import SType
from numpy.typing import NDArray

from fedcomp.core import dtype_name
from fedcomp.wire import bfloat16_to_float32, to_numpy

if TYPE_CHECKING:
    from torch import Tensor

FIELDS = ("dtype", "shape", "stype", "data")


class DeferredArray(Array):
    """An Array whose `data` is a property.  It equals the Array with the same fields, and is sent and pickled as that Array."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    __hash__ = None  # type: ignore[assignment]  # as of every Array

    def plain(self) -> Array:
        """Return an ordinary Array with the same fields."""
        return Array(self.dtype, self.shape, self.stype, self.data)

    def deflate(self) -> bytes:
        """Return the object that Flower sends: that of the plain Array, since the object names its class."""
        return self.plain().deflate()

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.dtype, self.shape, self.stype, self.data)


class JoinedArray(DeferredArray):
    """An Array of the bytes of `parts`, which are joined each time they are read; the joined bytes are not kept."""

    def __init__(self, stype: str, *parts: bytes) -> None:
        """Hold `parts` themselves."""
        self._parts = parts
        vars(self).update(dtype="uint8", shape=(sum(map(len, parts)),), stype=stype)

    @property  # where Array has an attribute
    def data(self) -> bytes:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bytes of all parts."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @data.setter
    def data(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._parts = (data,)


class LazyArray(DeferredArray):
    """An Array that holds a numpy array, or a torch tensor on a device, and makes `data` only when it is read.

    Once a field is set it holds neither any more, and works from its bytes as every Array does.
    """

    def __init__(self, values: Any) -> None:
        """Hold `values` itself, not a copy: do not write to it afterwards."""
        self._values: Any = values
        self._data = b""
        self._size = -1
        vars(self).update(dtype=dtype_name(values.dtype), shape=tuple(values.shape), stype=SType.NUMPY)

    @property
    def values(self) -> Any:
        """The array or the tensor that is held, to be read only; None once a field was set."""
        return self._values

    @property
    def size(self) -> int:
        """The number of bytes of `data`."""
        if self._size < 0 or self._values is None:
            self._size = len(self.data)
        return self._size

    @property  # where Array has an attribute
    def data(self) -> bytes:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bytes that ``np.save`` writes; each reading makes them again, and they are not kept."""
        return self._data if self._values is None else Array(to_numpy(self._values)).data

    @data.setter
    def data(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._data = data

    def __setattr__(self, name: str, value: object) -> None:
        if name in FIELDS and self._values is not None:
            self._data, self._values = self.data, None
        super().__setattr__(name, value)

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the array, which the caller may write to."""
        return super().numpy() if self._values is None else np.array(to_numpy(self._values))


def to_record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """Return named numpy arrays or torch tensors as a record of Flower: copies, which become bytes where the record is sent.

    The copy of a tensor stays on its device, so that a `CompressionMod` compresses it there.  Tensors of bfloat16, which
    Flower's ``ArrayRecord(...)`` refuses, can be in it, and ``to_torch_state_dict`` returns them.

    Raises `ValueError` for anything but arrays by name, and for an array of objects.
    """
    if isinstance(arrays, RecordDict):
        raise ValueError("a RecordDict holds records; one of them is needed, or arrays by their names")
    if not hasattr(arrays, "items"):
        remedy = ": its .state_dict()" if hasattr(arrays, "state_dict") else ""
        raise ValueError(f"a {type(arrays).__name__} is no mapping; arrays by their names are needed{remedy}")
    return record_of({name: LazyArray(_copy(name, array)) for name, array in arrays.items()})


def _copy(name: str, array: Any) -> Any:
    if hasattr(array, "detach") and array.device.type != "cpu":
        return array.detach().clone()
    copied: NDArray[Any] = np.array(to_numpy(array))
    if copied.dtype.hasobject:
        what = f"of type {type(array).__name__}, which holds objects" if array is not None else "None"
        raise ValueError(f"{name!r} is {what}; a numpy array or a torch tensor of numbers is needed")
    return copied


def view_record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """Return named numpy arrays or torch tensors as a record of Flower that holds them: nobody may write to them any more."""
    return record_of({name: LazyArray(array) for name, array in arrays.items()})


def record_of(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record that holds the given Arrays themselves; the constructor of ArrayRecord would copy each."""
    record = TorchRecord() if any(map(_is_bfloat16, arrays.values())) else ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record


class TorchRecord(ArrayRecord):
    """A record with tensors of bfloat16, which its own ``to_torch_state_dict`` can return; it is sent as an ordinary one."""

    def to_torch_state_dict(self, *, keep_input: bool = True) -> "OrderedDict[str, Tensor]":
        """Return the record as a state dict of torch."""
        tensors = to_torch(self)
        if not keep_input:
            self.clear()
        return tensors

    def plain(self) -> ArrayRecord:
        """Return an ordinary record of the same Arrays."""
        record = ArrayRecord()
        record.update(self)
        return record

    def deflate(self) -> bytes:
        """Return the object that Flower sends: that of the plain record, since the object names its class."""
        return self.plain().deflate()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayRecord, (dict(self.items()),)


def to_torch(record: ArrayRecord) -> "OrderedDict[str, Tensor]":
    """Return any record as a state dict of torch; those with bfloat16 too, which Flower's ``to_torch_state_dict`` refuses.

    Raises `ValueError` for what is no `ArrayRecord`.

    Examples:
        >>> import torch
        >>> from fedcomp.flower import to_record, to_torch
        >>> to_torch(to_record({"weight": torch.tensor([0.5, -1.0], dtype=torch.bfloat16)}))["weight"]
        tensor([ 0.5000, -1.0000], dtype=torch.bfloat16)

    """
    if not isinstance(record, ArrayRecord):
        remedy = (
            "take one out of it" if isinstance(record, RecordDict) else "to_record makes one of arrays by their names"
        )
        raise ValueError(f"{type(record).__name__} is no ArrayRecord; {remedy}")
    words = {name for name, array in record.items() if _is_bfloat16(array)}
    numbers = {
        name: LazyArray(bfloat16_to_float32(array.numpy())) if name in words else array
        for name, array in record.items()
    }
    tensors = ArrayRecord.to_torch_state_dict(record_of(numbers))
    for name in words:
        tensors[name] = tensors[name].bfloat16()
    return tensors


def _is_bfloat16(array: Array) -> bool:
    return "bfloat16" in array.dtype
