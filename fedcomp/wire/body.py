"""The body of a frame: decoded for a layout that its receiver knows, and made as small as can be before it is sent."""

from collections.abc import Callable
from typing import Any

from fedcomp.entropy import EntropyCode, SparseLevelsCode, SparseValues, TernaryCode
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices, Masked, QuantizedVector
from fedcomp.wire.codec_ids import codec_by_id
from fedcomp.wire.layout import Layout

TIGHTER: dict[int, tuple[int, EntropyCode[Any]]] = {
    2: (12, TernaryCode("gamma")),
    4: (4, SparseValues("gamma")),
    5: (5, SparseLevelsCode("gamma")),
}
"""Codec id -> the id and the code that take the same quantized vector with positions in gamma code."""


def decode_body(codec: int, body: bytes, layout: Layout, changeable: Indices | None = None) -> QuantizedVector:
    """Return the quantized vector in the `body` of a frame with this codec id, for a model of this layout.

    With `changeable`, int64 (k,) ascending, the body holds these k entries of the vector, and the others are zero.

    Raises `FedcompError` for a damaged body, for one of another number of entries, and for one in more pieces than the layout
    has compressed tensors: each takes time, and honest senders make one of a tensor, or of several.  A code whose bodies have
    pieces, or groups that are tensors, counts them: its method ``count_pieces(body)``.
    """
    code = codec_by_id(codec)
    count: Callable[[bytes], int] | None = getattr(code, "count_pieces", None)  # for Protocols, isinstance is slow
    if count is not None and (pieces := count(body)) > len(layout.parts):
        raise CorruptError(f"a body in {pieces} pieces; at most {len(layout.parts)}, one a tensor, are allowed")
    decoded: QuantizedVector = code.decode(body, n=layout.n if changeable is None else changeable.size)
    return decoded if changeable is None else Masked(layout.n, changeable, decoded)


def tightened(codec: int, body: bytes, n: int) -> tuple[int, bytes]:
    """Return a codec id and a body of the same vector of `n` entries: with positions in gamma code, if that takes fewer bytes.

    Compressors write positions in Golomb code, as a bitmap or as delta keys.  Kept entries of real models come in clusters,
    which gamma code follows (`entropy/codes/gamma_positions.py`).
    """
    if codec not in TIGHTER:
        return codec, body
    number, code = TIGHTER[codec]
    tight = code.encode(codec_by_id(codec).decode(body, n=n))
    return (number, tight) if len(tight) < len(body) else (codec, body)
