"""Mutants by seed and number: changed specimens, in most cases with their checksums made right again."""

import hashlib
import re
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from fedcomp.errors import FedcompError
from fedcomp.split.activations import activation_layout
from fedcomp.sync import DeltaStep
from fedcomp.sync.fingerprint import fingerprint
from fedcomp.sync.replica import LENGTH
from fedcomp.wire import (
    FLAG_DIRECT,
    FLAG_EXACT,
    FLAG_GRID,
    SECONDS,
    STEPS_CODEC,
    Frame,
    Kind,
    ServerMessage,
    frame,
    join_bodies,
    read_vector,
    server_message,
)
from tests.wire import adversaries, batches, ends, specimens
from tests.wire.mutations import HUGE, disturb, disturb_head, seal_frame, seal_server_message

SIZES = (10, 10_000, 1_000_000)
"""Entries of the models."""
SHARES = (0.96, 0.038, 0.002)
HOSTILE = 0.65
"""The share of the bodies that come from `adversaries`: more than half of all mutants."""
BODY, SERVER_MESSAGE = "body", "message"
KINDS = (
    BODY,
    Kind.DELTA.name,
    Kind.JUMP.name,
    Kind.REPLAY.name,
    Kind.UPDATE.name,
    Kind.KEY.name,
    Kind.START.name,
    SERVER_MESSAGE,
    Kind.ACK.name,
    Kind.RESYNC.name,
    Kind.ACTIVATION.name,
    Kind.GRADIENT.name,
    *ends.KINDS,
)
WEIGHTS = (22, 16, 14, 12, 15, 9, 2, 10, 1, 1, 6, 3, *[2] * len(ends.KINDS))
TEXTS = (
    *(b"", b"(" * 60_000, b"-" * 60_000, b"nobody()", b"stc(**{})", b"stc(density=1e999)", b"stc(density=-0.0)"),
    *(b"stc(density=%s)" % (b"9" * digits) for digits in (400, 4300, 50_000)),
)
"""Texts that name no compressor: server messages ask for them."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Bytes that arrive as `kind` at a receiver with a model of `n` entries; `codec` is the codec id of a lone body."""

    kind: str
    n: int
    codec: int
    data: bytes

    @property
    def label(self) -> str:
        """The kind, and the codec id of a body."""
        return f"{self.kind} {self.codec}" if self.codec else self.kind


def mutant(seed: int, number: int, kinds: Collection[str] = KINDS) -> Mutant:
    """Return mutant `number` of `seed` of one of these kinds: the same on every run, independent of all others."""
    rng = Random(f"{seed}/{number}")
    (n,) = rng.choices(SIZES, SHARES)
    (kind,) = rng.choices(KINDS, [weight * (kind in kinds) for kind, weight in zip(KINDS, WEIGHTS, strict=True)])
    return MAKERS[kind](rng, n)


def _body(rng: Random, n: int) -> tuple[int, bytes]:
    """Return a codec id and a body, which may be slow to decode, damaged, or that of another codec."""
    if rng.random() < HOSTILE:
        codec, body = adversaries.body(n, rng.randrange(adversaries.count()))
    else:
        codec, body = specimens.body(n, rng.choice(specimens.numbers(n)))
    what = rng.random()
    if what < 0.1:
        return codec, body
    other = specimens.body(n, rng.choice(specimens.numbers(n)))[1] if what < 0.2 else b""
    return (codec, other) if what < 0.12 else (codec, disturb(rng, body, other))


def _alone(rng: Random, n: int) -> Mutant:
    return Mutant(BODY, n, *_body(rng, n))


def _exact(rng: Random, n: int) -> bytes | None:
    """Return exact tensors, damaged or not, or none."""
    exact = specimens.world(n).replica.exact
    return rng.choice((None, exact, disturb(rng, exact)))


def _update(rng: Random, n: int) -> Mutant:
    codec, body = _body(rng, n)
    data = specimens.update(n, codec, body, _exact(rng, n))
    if rng.random() < 0.05:
        place = frame.HEAD.size
        data = seal_frame(
            data[:place] + disturb(rng, data[place : place + SECONDS.size]) + data[place + SECONDS.size :]
        )
    return Mutant(Kind.UPDATE.name, n, codec, _outside(rng, data))


def _delta(rng: Random, n: int) -> Mutant:
    """Return a delta, most often with the fingerprint of the model that it leads to, if it leads to one."""
    (codec, body), exact = _body(rng, n), _exact(rng, n)
    held = specimens.world(n).replica
    flags, here = (
        0 if exact is None else FLAG_EXACT,
        (held.version, held.version + 1, held.layout.digest, held.fingerprint),
    )
    if codec == STEPS_CODEC or rng.random() < 0.2:
        flags |= FLAG_GRID
    made = Frame(Kind.DELTA, codec, flags, *here, 0, body + (exact or b""))
    if rng.random() < 0.9:
        with suppress(FedcompError):
            made = replace(made, after=DeltaStep.of(held, made).fingerprint)
    return Mutant(Kind.DELTA.name, n, codec, _outside(rng, made.to_bytes()))


def _jump(rng: Random, n: int) -> Mutant:
    """Return a jump from the held version or its origin, most often with the fingerprint that it leads to, if to one."""
    codec, body = rng.choice(specimens.STEPS)(n)
    if rng.random() < 0.1:
        codec, body = _body(rng, n)
    elif rng.random() < 0.8:
        body = disturb(rng, body)
    exact, held = _exact(rng, n), specimens.world(n).replica
    assert held.origin is not None
    start = rng.choice((held, held.origin.base))
    versions = (start.version, held.version + rng.choice((0, 1, 1, 1, 40, -1)))
    flags = 0 if exact is None else FLAG_EXACT
    made = Frame(Kind.JUMP, codec, flags, *versions, held.layout.digest, start.fingerprint, 0, body + (exact or b""))
    if rng.random() < 0.9:
        with suppress(FedcompError):
            made = replace(made, after=DeltaStep.of(start, made).fingerprint)
    return Mutant(Kind.JUMP.name, n, 0, _outside(rng, made.to_bytes()))


def _replay(rng: Random, n: int) -> Mutant:
    """Return a replay of up to four bodies, most often with the fingerprint that it leads to, if to one."""
    whole, count = rng.random() < 0.5, rng.randrange(1, 5)
    bodies = [specimens.body(n, rng.choice(specimens.numbers(n))) if whole else _body(rng, n) for _ in range(count)]
    held, exact = specimens.world(n).replica, _exact(rng, n)
    payload = join_bodies(bodies)
    if rng.random() < 0.2:
        payload = disturb(rng, payload)
    versions = (held.version, held.version + rng.choice((len(bodies),) * 8 + (0, 1, 2**31)))
    flags = 0 if exact is None else FLAG_EXACT
    payload += exact or b""
    made = Frame(
        Kind.REPLAY, rng.choice((0, 0, 0, 11)), flags, *versions, held.layout.digest, held.fingerprint, 0, payload
    )
    if rng.random() < 0.9:
        with suppress(FedcompError):
            made = replace(made, after=_end(n, bodies, held.exact if exact is None else exact))
    return Mutant(Kind.REPLAY.name, n, 0, _outside(rng, made.to_bytes()))


def _end(n: int, bodies: list[tuple[int, bytes]], exact: bytes) -> int:
    """Return the fingerprint that `bodies`, added one after the other, and the exact tensors lead to."""
    here = specimens.world(n).copy()
    for codec, body in bodies:
        frame, step = here.delta(codec, body, here.exact)
        here = here.after(step, frame.version)
    return fingerprint(here.vector, exact)


def _layout(rng: Random, text: bytes) -> bytes:
    """Return the text of a layout, damaged or with another number."""
    if rng.random() < 0.6:
        return disturb(rng, text)
    side = rng.choice(re.findall(rb"\d+", text))
    return text.replace(side, str(rng.choice((*HUGE, -1))).encode(), 1)


def _start(rng: Random, n: int) -> Mutant:
    """Return a start frame of a damaged layout with the right digest, or one that names another model."""
    held = specimens.world(n).replica
    text, mark = held.layout.text, held.fingerprint
    if rng.random() < 0.8:
        text = _layout(rng, text)
    elif rng.random() < 0.5:
        mark ^= 1 << rng.randrange(64)
    digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    version = specimens.VERSION + rng.randrange(-1, 2)
    payload = LENGTH.pack(len(text)) + text + rng.choice((b"", b"", b"", bytes(4)))
    data = Frame(Kind.START, 0, 0, version, version, digest, mark, mark, payload).to_bytes()
    return Mutant(Kind.START.name, n, 0, _outside(rng, data))


def _key(rng: Random, n: int) -> Mutant:
    """Return a key frame of a damaged layout or model with the right digest and fingerprint."""
    world = specimens.world(n)
    codec = rng.choice((0, 0, 4, 11))
    payload = world.replica.key_frame().payload
    cut = LENGTH.size + LENGTH.unpack_from(payload)[0]
    text, model = payload[LENGTH.size : cut], payload[cut:]
    what = rng.random()
    if what < 0.5:
        text = _layout(rng, text)
    elif what < 0.9:
        model = disturb(rng, model)
    mark = 0
    if codec == 0 and len(model) >= 4 * n:
        mark = fingerprint(np.frombuffer(model, "<f4", n).astype(np.float32), model[4 * n :])
    if codec:
        model = _coded(rng, n, codec) + world.replica.exact
        with suppress(FedcompError):
            vector = read_vector(codec, model[: -len(world.replica.exact)], world.replica.layout)
            mark = fingerprint(vector, world.replica.exact)
    digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    payload = LENGTH.pack(len(text)) + text + model
    if rng.random() < 0.05:
        payload = disturb(rng, payload)
    version = specimens.VERSION + rng.randrange(-1, 2)
    data = Frame(Kind.KEY, codec, FLAG_EXACT, version, version, digest, mark, mark, payload).to_bytes()
    return Mutant(Kind.KEY.name, n, codec, _outside(rng, data))


def _coded(rng: Random, n: int, codec: int) -> bytes:
    """Return a body of that codec, most often a damaged one, which holds all or some entries of a vector."""
    made, body = rng.choice(specimens.STEPS)(n) if codec == STEPS_CODEC else specimens.VALUES(n)
    assert made == codec
    if rng.random() < 0.3:
        hostile, other = adversaries.body(n, rng.randrange(adversaries.count()))
        body = other if hostile == codec else body
    return body if rng.random() < 0.2 else disturb(rng, body)


def _answer(kind: Kind, rng: Random, n: int) -> Mutant:
    data = specimens.answer(n, kind)
    if rng.random() < 0.3:
        data = seal_frame(data + rng.randbytes(rng.randrange(20)))
    return Mutant(kind.name, n, 0, _outside(rng, data) if rng.random() < 0.3 else seal_frame(disturb_head(rng, data)))


def _activation(rng: Random, n: int) -> Mutant:
    """Return a batch of known and new samples, most often with the digest of what the receiver holds of the known ones."""
    (codec, body), batch = _body(rng, n), batches.batch(n)
    head = batch.head if rng.random() < 0.7 else disturb(rng, batch.head)
    first = batch.first if rng.random() < 0.8 else disturb(rng, batch.first)
    is_direct = rng.random() < 0.1
    layout = activation_layout((batch.row_size,)).digest
    before = batch.digest if rng.random() < 0.95 else rng.getrandbits(64)
    payload = head + (b"" if is_direct else first) + body
    flags = FLAG_DIRECT if is_direct else 0
    made = Frame(Kind.ACTIVATION, codec, flags, 1, 1, layout, before, specimens.NUMBER, payload)
    return Mutant(Kind.ACTIVATION.name, n, codec, _outside(rng, made.to_bytes()))


def _gradient(rng: Random, n: int) -> Mutant:
    codec, body = _body(rng, n)
    layout = activation_layout((batches.batch(n).row_size,)).digest
    made = Frame(Kind.GRADIENT, codec, 0, 1, 1, layout, 0, specimens.NUMBER, body)
    return Mutant(Kind.GRADIENT.name, n, codec, _outside(rng, made.to_bytes()))


def _to_end(kind: str, rng: Random, _: int) -> Mutant:
    """Return what arrives at a node of a graph, or at an end of split training."""
    if kind == ends.SPLIT_MESSAGE:
        return Mutant(kind, ends.ENTRIES, 0, ends.split_message(rng))
    if kind == ends.SPLIT_ANSWER:
        return Mutant(kind, ends.ENTRIES, 0, ends.split_answer(rng))
    method = rng.randrange(len(ends.METHODS))
    if kind in ends.REQUESTS:
        return Mutant(kind, ends.ENTRIES, method, ends.request(rng, kind, method))
    make = ends.state if kind == ends.STATE else ends.fetched
    return Mutant(kind, ends.ENTRIES, method, make(rng, method))


def _outside(rng: Random, data: bytes) -> bytes:
    """Return the frame `data` as it is, with a damaged head, or damaged anywhere; seldom without its checksum."""
    what = rng.random()
    if what < 0.82:
        return data
    data = disturb_head(rng, data) if what < 0.92 else disturb(rng, data)
    return data if rng.random() < 0.25 else seal_frame(data, length=rng.random() < 0.8)


def _server_message(rng: Random, n: int) -> Mutant:
    message = specimens.server_message(n, rng.choice(specimens.ROUTES), rng.choice((0, 0, 1, 2**64 - 1)))
    what = rng.random()
    if what < 0.5 and message.frames:
        message = replace(message, frames=_frames(rng, n, list(message.frames)))
    data = message.to_bytes()
    if what >= 0.9:
        data = disturb(rng, data)
    elif what >= 0.5:
        data = _with_other_text(rng, message, data)
    return Mutant(SERVER_MESSAGE, n, 0, data if what >= 0.95 else seal_server_message(data))


def _frames(rng: Random, n: int, frames: list[bytes]) -> tuple[bytes, ...]:
    """Return frames of which one is damaged, missing, repeated or in another's place."""
    place, what = rng.randrange(len(frames)), rng.random()
    if what < 0.5:
        frames[place] = _outside(rng, seal_frame(disturb(rng, frames[place]) if what < 0.3 else frames[place]))
    elif what < 0.7:
        frames[place] = MAKERS[rng.choice((Kind.KEY.name, Kind.DELTA.name, Kind.UPDATE.name))](rng, n).data
    elif what < 0.8:
        del frames[place]
    elif what < 0.9:
        frames.insert(rng.randrange(len(frames) + 1), frames[place])
    else:
        rng.shuffle(frames)
    return tuple(frames)


def _with_other_text(rng: Random, message: ServerMessage, data: bytes) -> bytes:
    """Return the server message with another text, or another number in its head."""
    begin, length = server_message.HEAD.size, len(message.uplink.encode())
    if rng.random() < 0.5:
        text = data[begin : begin + length]
        text = rng.choice(TEXTS) if rng.random() < 0.1 else disturb(rng, text, rng.choice(specimens.TEXTS).encode())
        return data[:6] + struct.pack("<H", len(text)) + data[8:begin] + text + data[begin + length :]
    return disturb(rng, data[:begin]).ljust(begin, b"\0")[:begin] + data[begin:]


MAKERS: dict[str, Callable[[Random, int], Mutant]] = {
    BODY: _alone,
    Kind.DELTA.name: _delta,
    Kind.JUMP.name: _jump,
    Kind.REPLAY.name: _replay,
    Kind.UPDATE.name: _update,
    Kind.KEY.name: _key,
    Kind.START.name: _start,
    SERVER_MESSAGE: _server_message,
    Kind.ACK.name: partial(_answer, Kind.ACK),
    Kind.RESYNC.name: partial(_answer, Kind.RESYNC),
    Kind.ACTIVATION.name: _activation,
    Kind.GRADIENT.name: _gradient,
    **{kind: partial(_to_end, kind) for kind in ends.KINDS},
}
