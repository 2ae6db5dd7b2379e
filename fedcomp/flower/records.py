"""Bytes in and out of Flower's records: one message carries one Array, whose `stype` makes `Array.numpy` refuse it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedcomp.errors import CorruptError
from fedcomp.flower.compat import KEY_CLIPPING_NORM, JoinedArray, LazyArray, SType, record_of, to_record, view_record
from fedcomp.wire import BFLOAT16, bfloat16_to_float32, rounded, to_numpy

Messages = Iterable[Message]
STYPE = "fedcomp.frame/1"
RECORD_STYPE = "fedcomp.record/1"
"""The `stype` of a further record that is compressed."""
RECORD_UPLINKS = "fedcomp.records"
"""The key of the config in a training message that names the compressors of further records, by their keys."""
BY_MOD = "CompressionMod cannot send the reply: "
"""Precedes the text of an error that is not the app's."""
KEY = "fedcomp"
NPY_1 = b"\x93NUMPY\x01\x00"
"""The start of a file in the npy format, version 1.0."""


def pack(*parts: bytes, stype: str = STYPE) -> ArrayRecord:
    """Return the bytes of `parts` as an ArrayRecord of one Array, which shares them with others until it is sent."""
    return record_of({KEY: JoinedArray(stype, *parts)})


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of a message, by their keys and sorted by what they are.

    Nothing reads the bytes of an Array before they are asked for: those of a message that leaves are joined at each reading.

    Attributes:
        frames: The Arrays of the records that `pack` made; a valid message has one at most.
        compressed: The Arrays of further records that are compressed.
        dense: The array records that travel as they are.
        metrics: The metric records.
        configs: The config records.
    """

    frames: dict[str, Array] = field(default_factory=dict[str, Array])
    compressed: dict[str, Array] = field(default_factory=dict[str, Array])
    dense: dict[str, ArrayRecord] = field(default_factory=dict[str, ArrayRecord])
    metrics: dict[str, MetricRecord] = field(default_factory=dict[str, MetricRecord])
    configs: dict[str, ConfigRecord] = field(default_factory=dict[str, ConfigRecord])

    @classmethod
    def of(cls, content: RecordDict) -> "Contents":
        """Return the records of `content`, which are shared; Flower's own properties check each record again."""
        found = cls()
        for key, record in content.items():
            if isinstance(record, ArrayRecord):
                array = record[KEY] if set(record) == {KEY} else None
                if array is not None and array.stype == STYPE:
                    found.frames[key] = array
                elif array is not None and array.stype == RECORD_STYPE:
                    found.compressed[key] = array
                else:
                    found.dense[key] = record
            elif isinstance(record, MetricRecord):
                found.metrics[key] = record
            else:
                found.configs[key] = record
        return found

    @property
    def frame(self) -> tuple[str, bytes] | None:
        """The key and the bytes of the record that `pack` made, or None; raises `CorruptError` if there are several."""
        if len(self.frames) > 1:
            raise CorruptError(f"{len(self.frames)} fedcomp records in one message; one is needed")
        return next(((key, array.data) for key, array in self.frames.items()), None)

    @property
    def array_keys(self) -> set[str]:
        """The keys of all array records."""
        return {*self.frames, *self.compressed, *self.dense}

    @property
    def record_uplinks(self) -> dict[str, str]:
        """Key -> text of the compressor of each further record that the server of a training message wants compressed."""
        return {key: str(text) for key, text in self.configs.get(RECORD_UPLINKS, ConfigRecord()).items()}

    @property
    def clipping_norm(self) -> float | None:
        """The clipping norm that Flower's strategies of differential privacy put into a training message; None without one.

        A value that those strategies refuse, such as 0 or a text, is a setting of the app's own.
        """
        for config in self.configs.values():
            norm = config.get(KEY_CLIPPING_NORM)
            if isinstance(norm, int | float) and not isinstance(norm, bool) and 0 < norm < math.inf:
                return float(norm)
        return None


def packed(content: RecordDict) -> tuple[str, bytes] | None:
    """Return the key of the record that `pack` made in `content`, and its bytes; None if there is no such record.

    Raises `CorruptError` if there are several.
    """
    return Contents.of(content).frame


def array_records(content: RecordDict) -> dict[str, ArrayRecord]:
    """Return the array records of `content`; its own property of that name is slow, since it checks each record again."""
    return {key: record for key, record in content.items() if isinstance(record, ArrayRecord)}


def dense_size(record: ArrayRecord) -> int:
    """Return the number of bytes that plain Flower sends for `record`."""
    return sum(array.size if isinstance(array, LazyArray) else len(array.data) for array in record.values())


def are_equal(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Return whether two plain records hold the same bits under the same names; nothing is copied."""
    if first.keys() != second.keys():
        return False
    for name, one in first.items():
        other = second[name]
        if (one.dtype, one.shape, one.stype) != (other.dtype, other.shape, other.stype) or one.stype != SType.NUMPY:
            return False
        bits, wanted = (np.ravel(to_numpy(_held(array))).view(np.uint8) for array in (one, other))
        if not np.array_equal(bits, wanted):
            return False
    return True


def dense_sizes(content: RecordDict) -> dict[str, int]:
    """Return key -> bytes of each array record that `pack` did not make: those travel as they are."""
    return {key: dense_size(record) for key, record in Contents.of(content).dense.items()}


def to_arrays(record: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """Return the numpy arrays of a plain record, to be read only: they may share memory with it."""
    return {name: to_numpy(values) for name, values in held_values(record).items()}


def held_values(record: Mapping[str, Array]) -> dict[str, Any]:
    """Return the numpy arrays of a plain record, or the torch tensors that `to_record` left on their device."""
    return {name: _held(array) for name, array in record.items()}


def round_model(model: ArrayRecord | Mapping[str, Any], bits: int = 8, *, exact: Iterable[str] = ()) -> ArrayRecord:
    """Return a first model that takes at most about `bits` bits an entry when it is sent, 2 to 16, in place of 32.

    The entries of each floating tensor become whole multiples of one power of two, at most 2^(bits - 1) - 1 of them either way,
    and at least 2^-24: of Gaussian entries, 8 bits change the l2 norm by 2 %, 4 bits by 29 %, and with 2 most become 0.
    BatchNorm statistics, and tensors that `exact` names as in `CompressedStrategy`, stay as they are.  The training starts from
    these numbers; later versions have all 32 bits.

    Raises `ValueError` for other bits, for a model that `to_record` refuses, and for tensors that cannot be sent.
    """
    record = model if isinstance(model, ArrayRecord) else to_record(model)
    return to_record(rounded(to_arrays(record), bits, exact))


def model_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return the arrays of a replica as a record that holds them, with bfloat16, which Flower lacks, as float32."""
    return view_record({name: bfloat16_to_float32(a) if a.dtype == BFLOAT16 else a for name, a in arrays.items()})


def _held(array: Array) -> Any:
    """Return what `array` holds, or ``array.numpy()``, without a copy if the bytes are those that ``np.save`` writes."""
    if isinstance(array, LazyArray) and array.values is not None:
        return array.values
    data = array.data
    if array.stype != SType.NUMPY or data[:8] != NPY_1:
        return array.numpy()
    begin = len(NPY_1) + 2 + int.from_bytes(data[8:10], "little")
    shape, fortran_order, dtype = _npy_header(data[8:begin])
    if dtype.hasobject or len(data) != begin + dtype.itemsize * math.prod(shape):
        return array.numpy()  # which raises
    values: NDArray[Any] = np.frombuffer(data, dtype, offset=begin)
    return values.reshape(shape, order="F" if fortran_order else "C")


@lru_cache(maxsize=256)
def _npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, the Fortran order and the dtype in a header of the npy format, version 1.0."""
    return np.lib.format.read_array_header_1_0(BytesIO(header))
