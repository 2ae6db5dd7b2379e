"""The payload of a replay: the bodies of consecutive deltas off the grid, one after the other."""

from collections.abc import Iterable

from fedcomp.entropy import ByteReader, write_varint

Body = tuple[int, bytes]
"""A codec id, and a body of that codec."""


def join_bodies(bodies: Iterable[Body]) -> bytes:
    """Return the bodies in a row, each behind its codec id and its length."""
    return b"".join(part for codec, body in bodies for part in (bytes([codec]), write_varint(len(body)), body))


def split_bodies(payload: bytes, count: int) -> tuple[list[tuple[int, memoryview]], bytes]:
    """Return the `count` bodies at the beginning of `payload` and what follows; raise `FedcompError` if there are fewer.

    The bodies are views: one copy at a time is enough to decode them.
    """
    reader, bodies = ByteReader(payload), list[tuple[int, memoryview]]()
    while len(bodies) < count:
        codec, size = reader.byte("codec of a replayed delta"), reader.varint("size of a replayed delta")
        bodies.append((codec, reader.take(size, "body of a replayed delta").data))
    return bodies, payload[reader.offset :]
