"""Bytes in and out of Flower's records: one message carries one Array.

The Array travels as it is through Flower; its `stype` makes `Array.numpy` refuse it where fedcomp is absent.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

STYPE = "fedcomp.frame/1"
KEY = "fedcomp"


def seal(data: bytes) -> ArrayRecord:
    """Return `data` as an ArrayRecord of one Array."""
    return ArrayRecord({KEY: Array("uint8", (len(data),), STYPE, data)})


def unseal(record: ArrayRecord) -> bytes | None:
    """Return what `seal` put into `record`; None for any other record."""
    if set(record) != {KEY} or record[KEY].stype != STYPE:
        return None
    return record[KEY].data


def sealed(content: RecordDict) -> tuple[str, bytes] | None:
    """Return the key of the sealed record in `content`, and its bytes; None where there is none."""
    found = [(key, data) for key, record in content.array_records.items() if (data := unseal(record)) is not None]
    if len(found) > 1:
        raise CorruptError(f"{len(found)} fedcomp records in one message; one is needed")
    return found[0] if found else None


def dense_size(record: ArrayRecord) -> int:
    """Return the bytes that plain Flower sends for `record`."""
    return sum(len(array.data) for array in record.values())


def size_beside(content: RecordDict, key: str) -> int:
    """Return the bytes of the array records beside `key`, which travel as they are."""
    return sum(dense_size(record) for name, record in content.array_records.items() if name != key)


def to_arrays(record: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """Return the numpy arrays of a plain record."""
    return {name: array.numpy() for name, array in record.items()}


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return named arrays as Flower sends them."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
