"""What a frame holds, and what methods there are, in plain text.

python -m fedcomp FILE      # a frame, several in a row, or an instruction (a downlink message); - reads standard input
python -m fedcomp methods   # every compression method, its settings, and what it measures on a fixed vector
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedcomp.errors import FedcompError, TruncatedError, UnknownFormatError
from fedcomp.methods import table
from fedcomp.quantized import Ternary
from fedcomp.sync import from_key_frame, split_payload
from fedcomp.wire import (
    CODECS,
    FLAG_EXACT,
    FLAG_FIRST,
    FRAME_FORMAT,
    MESSAGE_FORMAT,
    MESSAGE_MAGIC,
    NO_BODY,
    SECONDS,
    Frame,
    Kind,
    Layout,
    ServerMessage,
    codec_by_id,
    parse_frame,
    parse_server_message,
)

METHODS = "methods"


def describe(data: bytes) -> Iterator[str]:
    """Yield the lines that say what `data` holds; raise `FedcompError` where it is no frame and no instruction."""
    layouts: dict[int, Layout] = {}
    if data.startswith(MESSAGE_MAGIC):
        asked, frames = parse_server_message(data)
        yield from _instruction(asked, len(data))
        at = len(data) - sum(one.size for one in frames)
        if not frames:
            return
    else:
        at = 0
    while True:
        one, end = parse_frame(data, at)
        yield f"{one.kind.name} frame at byte {at}, {end - at} bytes"
        yield from (f"  {name:<13}{text}" for name, text in _fields(one, layouts))
        at = end
        if at == len(data):
            return


def _instruction(asked: ServerMessage, size: int) -> Iterator[str]:
    yield f"INSTRUCTION {asked.number}, {size} bytes, {len(asked.frames)} frames"
    acked = f"for instruction {asked.acked.number}, CRC32 {asked.acked.crc:08x}" if asked.acked.number else "none yet"
    fields = {
        "format": f"{MESSAGE_FORMAT}",
        "leads to": f"version {asked.version} ({asked.fingerprint:016x})",
        "uplink": f"{asked.uplink!r}",
        "seed": f"{asked.seed}",
        "last taken": acked,
        "lineage": f"{asked.training_id:016x}" if asked.training_id else "not said",
    }
    yield from (f"  {name:<13}{text}" for name, text in fields.items())


def _fields(one: Frame, layouts: dict[int, Layout]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a frame says; `layouts` are those of the key frames before it, by digest."""
    yield "format", f"{FRAME_FORMAT}"
    known = CODECS.get(one.codec)
    name = "none" if one.codec == NO_BODY else type(known).__name__ if known else "not known here"
    yield "codec", f"{one.codec} ({name})"
    meanings = {FLAG_EXACT: "exact tensors behind the body", FLAG_FIRST: "the first of an estimate"}
    said = ", ".join(text for flag, text in meanings.items() if one.flags & flag)
    yield "flags", f"{one.flags:#x}{f' ({said})' if said else ''}"
    yield "layout", f"{one.layout:016x}"
    if one.kind in (Kind.KEY, Kind.DELTA):
        yield "versions", f"{one.base_version} -> {one.version}"
        yield "fingerprints", f"{one.before:016x} -> {one.after:016x}"
    else:
        yield "version", f"{one.version}"
        yield "fingerprint", f"{one.before:016x}"
        yield "answers", f"instruction {one.after}"
    yield "payload", f"{len(one.payload)} bytes"
    if one.kind is Kind.KEY:
        layout = from_key_frame(one).layout
        layouts[layout.digest] = layout
        yield "vector", f"{layout.n} entries, {4 * layout.n} bytes; exact tensors {layout.exact_size} bytes"
        for tensor in layout.tensors:
            yield "tensor", f"{tensor.name!r} {tensor.dtype} {tensor.shape} {tensor.policy}"
    elif one.kind in (Kind.DELTA, Kind.UPDATE):
        yield from _content(one, layouts.get(one.layout))


def _content(one: Frame, layout: Layout | None) -> Iterator[tuple[str, str]]:
    """Yield what the payload of a delta or an update holds, as far as it can be told without the model."""
    payload = one.payload
    if one.kind is Kind.UPDATE:
        if len(payload) < SECONDS.size:
            raise TruncatedError(f"{len(payload)} bytes of update; the seconds alone need {SECONDS.size}")
        encoding, decoding = SECONDS.unpack_from(payload)
        yield "seconds", f"{encoding:.6f} to encode, {decoding:.6f} to decode"
        payload = payload[SECONDS.size :]
    if one.codec not in CODECS:
        return
    if one.flags & FLAG_EXACT and layout is None:
        yield (
            "body",
            "cannot be told from the exact tensors without the layout, which a key frame before it would bring",
        )
        return
    body, exact = (payload, b"") if layout is None else split_payload(one, payload, layout, b"")
    symbols = codec_by_id(one.codec).decode(body, n=None if layout is None else layout.n)
    yield "body", f"{len(body)} bytes, {8 * len(body) / max(1, symbols.n):.6f} bits per entry"
    yield "n", f"{symbols.n}"
    if isinstance(symbols, Ternary):
        k = symbols.indices.size
        yield "k", f"{k}, {8 * len(body) / max(1, k):.3f} bits per kept entry"
        yield "density", f"{k / max(1, symbols.n):.6g}"
        yield "magnitude", f"{symbols.magnitude:.9g}"
    if exact:
        yield "exact", f"{len(exact)} bytes"


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the file holds, or the methods; return 0, or 1 where a file cannot be read or is damaged."""
    parser = argparse.ArgumentParser(
        prog="python -m fedcomp", description="Say what a frame holds, or what methods there are."
    )
    parser.add_argument(
        "file",
        metavar="FRAME|methods",
        help=f"a file of frames or an instruction, - for standard input; or the word {METHODS}",
    )
    name: str = parser.parse_args(arguments).file
    try:
        for line in table.lines() if name == METHODS else describe(_read(name)):
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"fedcomp: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    except FedcompError as error:
        kind = "not known here" if isinstance(error, UnknownFormatError) else "damaged"
        print(f"fedcomp: {name}: {kind}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
