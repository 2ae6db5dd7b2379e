"""What crosses the network: frames, the codecs they name, and the layout of the model behind them.  See FORMAT.md."""

from fedcomp.wire.body import decode_body, join_bodies, read_bodies, some_tensors, tensors_in
from fedcomp.wire.change import change_of
from fedcomp.wire.codec_ids import CODECS, NO_BODY, SOME_TENSORS, STEPS_CODEC, codec_by_id, codec_id, register_codec
from fedcomp.wire.dtypes import BFLOAT16, COMPLEX, bfloat16_to_float32, dtype_of, float32_to_bfloat16, to_numpy
from fedcomp.wire.frame import (
    FLAG_DIRECT,
    FLAG_EXACT,
    FLAG_FIRST,
    FLAG_GRID,
    FRAME_FORMAT,
    KINDS,
    SECONDS,
    STEP_KINDS,
    Frame,
    Kind,
    kind_of,
    parse_frame,
    parse_frames,
    parse_single_frame,
)
from fedcomp.wire.layout import MASK, Layout, layout_of, parse_layout, unpack_mask
from fedcomp.wire.rounding import rounded
from fedcomp.wire.selection import Selection, TensorFlags, changed_tensors, selected_entries
from fedcomp.wire.server_message import (
    COUNTER_BITS,
    MESSAGE_FORMAT,
    MESSAGE_MAGIC,
    Ack,
    ServerMessage,
    ack_of,
    parse_server_message,
)
from fedcomp.wire.statistics import batchnorm_statistics
from fedcomp.wire.tensor import Tensor
from fedcomp.wire.ties import check_ties, probable_ties
from fedcomp.wire.whole_vector import read_vector, write_vector

__all__ = [
    "BFLOAT16",
    "CODECS",
    "COMPLEX",
    "COUNTER_BITS",
    "FLAG_DIRECT",
    "FLAG_EXACT",
    "FLAG_FIRST",
    "FLAG_GRID",
    "FRAME_FORMAT",
    "KINDS",
    "MASK",
    "MESSAGE_FORMAT",
    "MESSAGE_MAGIC",
    "NO_BODY",
    "SECONDS",
    "SOME_TENSORS",
    "STEPS_CODEC",
    "STEP_KINDS",
    "Ack",
    "Frame",
    "Kind",
    "Layout",
    "Selection",
    "ServerMessage",
    "Tensor",
    "TensorFlags",
    "ack_of",
    "batchnorm_statistics",
    "bfloat16_to_float32",
    "change_of",
    "changed_tensors",
    "check_ties",
    "codec_by_id",
    "codec_id",
    "decode_body",
    "dtype_of",
    "float32_to_bfloat16",
    "join_bodies",
    "kind_of",
    "layout_of",
    "parse_frame",
    "parse_frames",
    "parse_layout",
    "parse_server_message",
    "parse_single_frame",
    "probable_ties",
    "read_bodies",
    "read_vector",
    "register_codec",
    "rounded",
    "selected_entries",
    "some_tensors",
    "tensors_in",
    "to_numpy",
    "unpack_mask",
    "write_vector",
]
