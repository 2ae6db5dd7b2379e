"""The body of a frame, decoded for a layout that its receiver knows, and the bodies in the payload of a replay."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from fedcomp.entropy import ByteReader, write_varint
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices, Masked, QuantizedVector, Sparse
from fedcomp.wire.codec_ids import NO_BODY, SOME_TENSORS, codec_by_id
from fedcomp.wire.layout import Layout
from fedcomp.wire.selection import Selection, TensorFlags, read_selection

Body = tuple[int, bytes]
"""A codec id, and a body of that codec."""


def decode_body(codec: int, body: bytes, layout: Layout, changeable: Indices | None = None) -> QuantizedVector:
    """Return the quantized vector in the `body` of a frame with this codec id, for a model of this layout.

    With `changeable`, int64 (k,) ascending, the body holds these k entries of the vector, and the others are zero.  A body of
    some tensors does not change the other tensors.

    Raises `FedcompError` for a damaged body, for another number of entries, and for more pieces than the layout has compressed
    tensors.  Each piece takes time, and an honest sender makes one piece of one or several tensors.  A code whose bodies have
    pieces, or groups that are tensors, counts them in a method ``count_pieces(body)``.
    """
    if codec != SOME_TENSORS:
        if changeable is None:
            return _decoded(codec, body, layout, layout.n)
        return Masked(layout.n, changeable, _decoded(codec, body, layout, changeable.size))
    selection, body = read_selection(body, layout, changeable)
    if not selection.n:
        if selection.tensors.any() or body:
            raise CorruptError(f"{len(body)} bytes behind a selection of no entries; none are needed, of no tensors")
        return Sparse(layout.n, np.empty(0, np.int64), np.empty(0, np.float32))
    if not body:
        raise TruncatedError("a body of some tensors ends before the codec of their entries")
    return selection.within(_decoded(body[0], body[1:], layout, selection.n))


def _decoded(codec: int, body: bytes, layout: Layout, n: int) -> QuantizedVector:
    """Return the quantized vector of `n` entries in a body of all tensors."""
    code = codec_by_id(codec)
    count: Callable[[bytes], int] | None = getattr(code, "count_pieces", None)  # for Protocols, isinstance is slow
    if count is not None and (pieces := count(body)) > len(layout.parts):
        raise CorruptError(f"a body in {pieces} pieces; at most {len(layout.parts)}, one a tensor, are allowed")
    decoded: QuantizedVector = code.decode(body, n=n)
    return decoded


def tensors_in(codec: int, body: bytes, layout: Layout) -> TensorFlags:
    """Return which tensors a body holds, bool (t,); raises as `read_selection` does."""
    return read_selection(body, layout)[0].tensors if codec == SOME_TENSORS else np.ones(len(layout.filled), np.bool_)


def some_tensors(selection: Selection, codec: int = NO_BODY, body: bytes = b"") -> tuple[int, bytes]:
    """Return the codec id and the body of a selection whose entries are in `body`, with the codec id `codec`.

    A selection of no entries has no body, and is written as a selection of no tensors.
    """
    if not selection.n:
        return SOME_TENSORS, bytes(len(selection.to_bytes()))
    return SOME_TENSORS, b"".join((selection.to_bytes(), bytes([codec]), body))


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
