"""The body of a frame, decoded for a layout that its receiver knows."""

from typing import Protocol, runtime_checkable

from fedcomp.errors import CorruptError
from fedcomp.quantized import QuantizedVector
from fedcomp.wire.codec_ids import codec_by_id
from fedcomp.wire.layout import Layout


@runtime_checkable
class InPieces(Protocol):
    """An entropy code whose bodies have pieces: each takes time to decode, however few entries it has."""

    def count_pieces(self, value: bytes, /) -> int:
        """Return the number of pieces in the body `value`; raises `FedcompError` for a damaged one."""
        ...


def decode_body(codec: int, body: bytes, layout: Layout) -> QuantizedVector:
    """Return the quantized vector in the `body` of a frame with this codec id, for a model of this layout.

    Raises `FedcompError` for a damaged body, for one of another number of entries, and for one in more pieces than the layout
    has compressed tensors: honest senders make one of a tensor, or of several.
    """
    code = codec_by_id(codec)
    if isinstance(code, InPieces) and (pieces := code.count_pieces(body)) > len(layout.parts):
        raise CorruptError(f"a body in {pieces} pieces; at most {len(layout.parts)}, one a tensor, are allowed")
    decoded: QuantizedVector = code.decode(body, n=layout.n)
    return decoded
