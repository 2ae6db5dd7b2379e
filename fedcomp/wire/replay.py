"""The payload of a replay: the bodies of consecutive deltas off the grid, in order."""

from collections.abc import Iterable, Iterator

from fedcomp.entropy import ByteReader, write_varint

Body = tuple[int, bytes]
"""A codec id, and a body of that codec."""


def join_bodies(bodies: Iterable[Body]) -> bytes:
    """Return the bodies in a row, each behind its codec id and its length."""
    return b"".join(part for codec, body in bodies for part in (bytes([codec]), write_varint(len(body)), body))


def read_bodies(payload: bytes, count: int) -> Iterator[tuple[Body, int]]:
    """Yield the `count` bodies at the beginning of `payload`, each with the offset behind it; raise `FedcompError` for fewer.

    Each body is read only when it is asked for: a list of tiny bodies would take far more memory and time than their bytes.
    """
    reader = ByteReader(payload)
    for _ in range(count):
        codec, size = reader.byte("codec of a replayed delta"), reader.varint("size of a replayed delta")
        body = reader.take(size, "body of a replayed delta").tobytes()
        yield (codec, body), reader.offset
