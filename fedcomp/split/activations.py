"""The ACTIVATION frame: a batch of activations, in full at a sample's first visit, and later as change against the memory.

``wire/FORMAT.md`` specifies the bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.entropy import ByteReader, write_varint
from fedcomp.errors import CorruptError, DivergedError, LayoutError, NonFiniteError, VersionError
from fedcomp.split.memory import ActivationMemory, Ids, digest_of
from fedcomp.sync import MAX_WEIGHT_MAGNITUDE
from fedcomp.wire import FLAG_DIRECT, NO_BODY, Frame, Kind, Layout, Tensor, codec_id, decode_body

MAX_LABEL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Activations:
    """A batch as the receiver has it: `ids` int64 (B,), and their activations `rows`, float32 (B, F).

    `first` bool (B,) marks the samples that the receiver did not know.  They came in full with their `labels`, int64 (k,), and
    took `first_bytes` of the frame.
    """

    ids: NDArray[np.int64]
    rows: Vector
    first: NDArray[np.bool_]
    labels: NDArray[np.int64]
    first_bytes: int


def activation_layout(shape: Sequence[int]) -> Layout:
    """Return the layout of one sample's activation; its digest is in each frame, and guards against another cut."""
    return Layout((Tensor("activation", tuple(shape), "float32", "compressed"),))


def write_activations(
    ids: Ids,
    rows: Vector,
    labels: Sequence[int] | NDArray[np.int64],
    memory: ActivationMemory,
    compressor: Compressor,
    *,
    shape: Sequence[int] | None = None,
    number: int = 0,
    round_number: int = 0,
    seed: int = 0,
    direct: bool = False,
) -> Frame:
    """Return the frame of the activations `rows`, float32 (B, F), of the samples `ids` with `labels`; `memory` is only read.

    `shape` is the shape of one activation, (F,) if it is left out.  The frame answers message `number`.  Raises
    `DivergedError` for activations that are NaN or beyond 10^15.
    """
    if not (largest := float(np.abs(rows).max())) <= MAX_WEIGHT_MAGNITUDE:
        raise DivergedError(f"an activation of magnitude {largest:g}; at most {MAX_WEIGHT_MAGNITUDE:g} can be sent")
    known = memory.knows(ids)
    held = [int(each) for each, is_known in zip(ids, known, strict=True) if is_known]
    parts = [write_varint(len(ids)), *(write_varint(int(each)) for each in ids), np.packbits(~known).tobytes()]
    parts += [write_varint(int(label)) for label, is_known in zip(labels, known, strict=True) if not is_known]
    base = memory.rows(held)
    if direct:
        values = rows.ravel()
    else:
        parts.append(rows[~known].astype("<f4").tobytes())
        values = (rows[known] - base).ravel()
    codec, body = encode(values, compressor, seed) if values.size else (NO_BODY, b"")
    layout = activation_layout(rows.shape[1:] if shape is None else shape)
    head = (round_number, round_number, layout.digest, digest_of(base), number)
    return Frame(Kind.ACTIVATION, codec, FLAG_DIRECT if direct else 0, *head, b"".join((*parts, body)))


def read_activations(
    frame: Frame,
    memory: ActivationMemory,
    shape: Sequence[int],
    *,
    max_batch: int,
    max_samples: int,
    direct: bool = False,
) -> Activations:
    """Return the batch that `write_activations` wrote with an equal `memory`, which is only read.

    Both ends compute the same bits.

    Raises:
        VersionError: The memories differ; a full send of the samples repairs that.
        LayoutError: The activations are of another shape, because the model was cut elsewhere.
        CorruptError: More than `max_batch` samples, an id of `max_samples` or more, activations that are NaN or beyond 10^15,
            or bytes that contradict themselves.
        FedcompError: Other damage.

    """
    flags = FLAG_DIRECT if direct else 0
    if frame.kind is not Kind.ACTIVATION or frame.flags != flags:
        found = f"a frame of kind {frame.kind.name} with the flags {frame.flags:#x}"
        raise CorruptError(f"{found}; ACTIVATION with the flags {flags:#x} is needed")
    if frame.layout != activation_layout(shape).digest:
        raise LayoutError(
            f"activations of another shape than {tuple(shape)}; both ends cut the model at the same layer"
        )
    size, reader = math.prod(shape), ByteReader(frame.payload)
    count = reader.varint("number of samples")
    if not 0 < count <= max_batch:
        raise CorruptError(f"{count} samples; 1 to {max_batch} are possible")
    ids = np.array([reader.varint("sample id") for _ in range(count)], np.int64)
    if int(ids.max()) >= max_samples or np.unique(ids).size < count:
        raise CorruptError(f"the largest sample id is {ids.max()}; different ones below {max_samples} are needed")
    first = reader.flags(count, "first visits")
    begin = reader.offset
    labels = np.array([reader.varint("label") for _ in range(int(first.sum()))], np.int64)
    if labels.max(initial=0) > MAX_LABEL:
        raise CorruptError(f"the label {labels.max()}; at most {MAX_LABEL} is possible")
    full = reader.array("<f4", 0 if direct else labels.size * size, "first activations")
    first_bytes, body = reader.offset - begin, frame.payload[reader.offset :]
    held = ids[~first]
    if not memory.knows(held).all() or memory.digest(held) != frame.before:
        raise VersionError("the memories of activations differ; a full send repairs that")
    rows = np.empty((count, size), np.float32)
    if direct:
        rows[:] = decode(frame.codec, body, rows.size).reshape(rows.shape)
    else:
        rows[first] = full.reshape(labels.size, size)
        changes = decode(frame.codec, body, held.size * size)
        with np.errstate(over="ignore", invalid="ignore"):
            rows[~first] = memory.rows(held) + changes.reshape(held.size, size)
    if not (largest := float(np.abs(rows).max())) <= MAX_WEIGHT_MAGNITUDE:
        raise CorruptError(f"an activation of magnitude {largest:g}; at most {MAX_WEIGHT_MAGNITUDE:g} is possible")
    return Activations(ids, rows, first, labels, first_bytes)


def encode(values: Vector, compressor: Compressor, seed: int) -> tuple[int, bytes]:
    """Return a codec id and the body of `values`, float32 (n,); raise `DivergedError` if a value is not finite."""
    try:
        body, _ = compressor.encode(values, {}, seed)
    except NonFiniteError as error:
        raise DivergedError(f"value {error.index} of a batch is {error.value}; only finite ones can be sent") from None
    return codec_id(compressor.entropy), body


def decode(codec: int, body: bytes, n: int) -> Vector:
    """Return the `n` values in a body, float32 (n,); raise `FedcompError` for a damaged body."""
    if n:
        return decode_body(codec, body, activation_layout((n,))).dense()
    if codec != NO_BODY or body:
        raise CorruptError(f"{len(body)} bytes of changes in codec {codec}; no sample of the batch has one")
    return np.empty(0, np.float32)
