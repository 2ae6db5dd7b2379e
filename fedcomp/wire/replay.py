"""The payload of a replay: the bodies of consecutive deltas off the grid, one after the other."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy import ByteReader, write_varint

Body = tuple[int, bytes]
"""A codec id, and a body of that codec."""


def join_bodies(bodies: Iterable[Body]) -> bytes:
    """Return the bodies in a row, each behind its codec id and its length."""
    return b"".join(part for codec, body in bodies for part in (bytes([codec]), write_varint(len(body)), body))


def split_bodies(payload: bytes, count: int) -> tuple[Iterator[Body], bytes]:
    """Return the `count` bodies at the beginning of `payload` and what follows; raise `FedcompError` if there are fewer.

    Each body is copied when it is its turn: a list of them could take far more memory than the payload.
    """
    reader = ByteReader(payload)
    for _ in range(count):
        _take(reader)
    return _bodies(payload, count), payload[reader.offset :]


def _bodies(payload: bytes, count: int) -> Iterator[Body]:
    reader = ByteReader(payload)
    for _ in range(count):
        codec, body = _take(reader)
        yield codec, body.tobytes()


def _take(reader: ByteReader) -> tuple[int, NDArray[np.uint8]]:
    codec, size = reader.byte("codec of a replayed delta"), reader.varint("size of a replayed delta")
    return codec, reader.take(size, "body of a replayed delta")
