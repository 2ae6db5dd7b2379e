"""Describe frames in order, or a server message: what each field holds, and how many bits an entry takes.

fedcomp show update.frame
fedcomp show - < update.frame
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedcomp.commands import new_parser, path_of
from fedcomp.errors import FedcompError, TruncatedError, UnknownFormatError
from fedcomp.quantized import Steps, Ternary
from fedcomp.sync import from_key_frame, layout_in, split_payload
from fedcomp.wire import (
    FLAG_DIRECT,
    FLAG_EXACT,
    FLAG_FIRST,
    FLAG_GRID,
    FRAME_FORMAT,
    MESSAGE_FORMAT,
    MESSAGE_MAGIC,
    NO_BODY,
    SECONDS,
    SOME_TENSORS,
    STEP_KINDS,
    Frame,
    Kind,
    Layout,
    ServerMessage,
    codec_by_id,
    decode_body,
    parse_frame,
    parse_server_message,
    read_bodies,
    selected_entries,
    tensors_in,
)

Field = tuple[str, str]


def describe(data: bytes) -> Iterator[str]:
    """Yield lines that describe `data`.  Raises `FedcompError` if it is neither frames nor a server message."""
    layouts: dict[int, Layout] = {}
    offset = 0
    if data.startswith(MESSAGE_MAGIC):
        message, frames = parse_server_message(data)
        offset = len(data) - sum(frame.size for frame in frames)
        yield f"SERVER MESSAGE {message.number}, {len(data)} bytes, {len(frames)} frames"
        yield from _lines(_message_fields(message))
        if not frames:
            return
    while True:
        frame, end = parse_frame(data, offset)
        yield f"{frame.kind.name} frame at byte {offset}, {end - offset} bytes"
        yield from _lines(_frame_fields(frame, layouts))
        offset = end
        if offset == len(data):
            return


def _lines(fields: Iterator[Field]) -> Iterator[str]:
    for name, text in fields:
        yield f"  {name:<13}{text}"


def _message_fields(message: ServerMessage) -> Iterator[Field]:
    acked = message.acked
    yield "format", f"{MESSAGE_FORMAT}"
    yield "leads to", f"version {message.version} ({message.fingerprint:016x})"
    yield "uplink", f"{message.uplink!r}"
    yield "seed", f"{message.seed}"
    yield "acked", f"reply to message {acked.number}, CRC32 {acked.crc:08x}" if acked.number else "nothing yet"
    yield "training id", f"{message.training_id:016x}" if message.training_id else "none"


def _frame_fields(frame: Frame, layouts: dict[int, Layout]) -> Iterator[Field]:
    """Yield the fields of a frame.  `layouts` holds the layouts of earlier key frames, by digest."""
    yield "format", f"{FRAME_FORMAT}"
    yield "codec", f"{frame.codec} ({_codec_name(frame.codec)})"
    meanings = {
        FLAG_EXACT: "exact tensors follow the body",
        FLAG_FIRST: "first message of an estimate",
        FLAG_GRID: "on the grid",
        FLAG_DIRECT: "the activations themselves",
    }
    flags = ", ".join(text for flag, text in meanings.items() if frame.flags & flag)
    yield "flags", f"{frame.flags:#x}{f' ({flags})' if flags else ''}"
    yield "layout", f"{frame.layout:016x}"
    if frame.kind in (Kind.KEY, Kind.START, *STEP_KINDS):
        yield "versions", f"{frame.base_version} -> {frame.version}"
        yield "fingerprints", f"{frame.before:016x} -> {frame.after:016x}"
    elif frame.kind in (Kind.ACTIVATION, Kind.GRADIENT):
        yield "round", f"{frame.version}"
        yield "rows", f"{frame.before:016x}"
        yield "answers" if frame.kind is Kind.ACTIVATION else "for", f"server message {frame.after}"
    else:
        yield "version", f"{frame.version}"
        yield "fingerprint", f"{frame.before:016x}"
        yield "answers", f"server message {frame.after}"
    yield "payload", f"{len(frame.payload)} bytes"
    if frame.kind in (Kind.KEY, Kind.START):
        layout, begin = layout_in(frame)
        layouts[layout.digest] = layout
        sent = ""
        if frame.kind is Kind.KEY:
            from_key_frame(frame)
            size = len(frame.payload) - begin - layout.exact_size
            sent = f", {size} bytes; exact tensors {layout.exact_size} bytes"
        yield "vector", f"{layout.n} entries{sent or '; the node makes them itself'}"
        for tensor in layout.tensors:
            yield "tensor", f"{tensor.name!r} {tensor.dtype} {tensor.shape} {tensor.policy_text}"
    elif frame.kind is Kind.REPLAY:
        end = 0
        for (codec, body), offset in read_bodies(frame.payload, frame.version - frame.base_version):
            yield "delta", f"codec {codec} ({_codec_name(codec)}), {len(body)} bytes"
            end = offset
        if end < len(frame.payload):
            yield "exact", f"{len(frame.payload) - end} bytes"
    elif frame.kind in (Kind.DELTA, Kind.JUMP, Kind.UPDATE):
        yield from _payload_fields(frame, layouts.get(frame.layout))


def _codec_name(codec: int) -> str:
    if codec == NO_BODY:
        return "none"
    if codec == SOME_TENSORS:
        return "some tensors"
    try:
        return type(codec_by_id(codec)).__name__
    except UnknownFormatError:
        return "unknown here"


def _payload_fields(frame: Frame, layout: Layout | None) -> Iterator[Field]:
    """Yield the fields in the payload of a delta or an update that can be read without the model."""
    payload = frame.payload
    if frame.kind is Kind.UPDATE:
        if len(payload) < SECONDS.size:
            raise TruncatedError(f"an update of {len(payload)} bytes; its seconds alone take {SECONDS.size}")
        encoding, decoding = SECONDS.unpack_from(payload)
        yield "seconds", f"{encoding:.6f} to encode, {decoding:.6f} to decode"
        payload = payload[SECONDS.size :]
    if (frame.flags & FLAG_EXACT or frame.codec == SOME_TENSORS) and layout is None:
        yield "body", "only a key frame before this frame shows where its parts begin"
        return
    body, exact = (payload, b"") if layout is None else split_payload(frame, payload, layout, b"")
    if layout is not None and frame.codec == SOME_TENSORS:
        names = [name for name, _ in selected_entries(layout, tensors_in(frame.codec, body, layout))]
        yield "tensors", f"{len(names)} of {len(layout.filled)}: {', '.join(names)}"
        quantized = decode_body(frame.codec, body, layout)
    else:
        try:
            code = codec_by_id(frame.codec)
        except UnknownFormatError:
            return
        quantized = code.decode(body, n=None if layout is None else layout.n)
    yield "body", f"{len(body)} bytes, {8 * len(body) / max(1, quantized.n):.6f} bits per entry"
    yield "n", f"{quantized.n}"
    if isinstance(quantized, Ternary | Steps):
        k = quantized.indices.size
        yield "k", f"{k}, {8 * len(body) / max(1, k):.3f} bits per kept entry"
    if isinstance(quantized, Ternary):
        yield "density", f"{quantized.indices.size / max(1, quantized.n):.6g}"
        yield "magnitude", f"{quantized.magnitude:.9g}"
    if isinstance(quantized, Steps):
        yield "largest", f"{abs(quantized.sparse().values).max(initial=0):.9g}"
    if exact:
        yield "exact", f"{len(exact)} bytes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the description of a file.  Return 0, or 1 after one sentence about what is wrong."""
    parser = new_parser("fedcomp show", __doc__)
    parser.add_argument(
        "file", type=path_of, metavar="FILE", help="a file of frames or of a server message; - is the standard input"
    )
    name = str(parser.parse_args(arguments).file)
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        print(f"fedcomp: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    try:
        for line in describe(data):
            print(line)
    except FedcompError as error:
        kind = "unknown here" if isinstance(error, UnknownFormatError) else "damaged"
        print(f"fedcomp: {name}: {kind}: {error}", file=sys.stderr)
        return 1
    return 0
