"""Undamaged bodies, frames and server messages of every kind, for models of any size: `fuzz.py` changes them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

import fedcomp
from fedcomp.core import Vector
from fedcomp.entropy import SparseLevelsCode, StepsCode
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import positions, values
from fedcomp.quantized import Indices, SparseLevels, Steps, Ternary
from fedcomp.sync import Origin, Replica, start_replica
from fedcomp.sync.encoding import encode_change
from fedcomp.wire import (
    FLAG_EXACT,
    SECONDS,
    STEPS_CODEC,
    Frame,
    Kind,
    ServerMessage,
    ack_of,
    codec_ids,
    layout_of,
    parse_single_frame,
)

SETTINGS = {
    "stc": (
        "",
        "density=0.3",
        "density=1.0",
        "density=0.05, order='split'",
        "density=0.05, order='interleaved'",
        "density=1.0, order='interleaved'",
    ),
    "topk": ("", "density=0.3, values='fp16'", "density=0.9, values='natural'", "density=1.0, values='bf16'"),
    "randk": ("", "density=0.5", "density=0.7", "density=1.0"),
    "hierarchical": ("", "density=0.4, levels=16, top_levels=4"),
    "fastsgd": ("", "base=1.1, levels=40"),
    "sparseloco": ("", "density=0.5, bits=4, chunk=64"),
    "qsgd": ("", "levels=1, norm='l2', bucket=100000", "levels=255", "levels=1, bucket=1"),
    "natural_dithering": ("", "levels=3, norm='l2'"),
    "cgx": ("", "adaptive=True, dense_below=10", "bucket=1"),
    "crosspolytope": ("bits=0.01", "bits=0.3", "bits=0.5", "bits=0.75"),
    "eden": ("bits=0.3", "bits=0.5", "bits=0.99", "bits=1.5", "bits=2", "bits=4"),
    "powersgd": ("rank=1", "rank=4", "rank=16", "rank=64", "rank=128"),
}
"""Settings that give bodies of every form; the settings of other methods do not change the form."""
TEXTS = tuple(f"{name}({settings})" for name in fedcomp.METHODS for settings in SETTINGS.get(name, ("",)))
VECTORS = 4
"""The vectors that are encoded with each setting."""
VERSION, NUMBER = 41, 9
"""The version of the held model, and the number of the last message that was followed."""
Body = tuple[int, bytes]
"""Codec and body."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A replica of `n` entries and the replicas of the next two versions; `steps` are the deltas between them."""

    n: int
    replicas: tuple[Replica, Replica, Replica]
    steps: tuple[bytes, bytes]

    @property
    def replica(self) -> Replica:
        """The held replica, which mutants must not change."""
        return self.replicas[0]

    def copy(self) -> Replica:
        """Return a copy of the held replica, which may be changed."""
        held = self.replica
        origin = held.origin and Origin(held.origin.base, held.origin.counts.copy())
        return replace(held, vector=held.vector.copy(), origin=origin)


@lru_cache(maxsize=8)
def world(n: int) -> World:
    """Return the world of that size: tensors of three dtypes in the vector, and three exact tensors."""
    rng = np.random.default_rng(n)
    side = max(1, math.isqrt(7 * n // 10))
    rest = n - side * side
    model = {
        "layer.weight": rng.standard_normal((side, side), np.float32),
        "norm.running_var": np.ones(2, np.float32),
        "norm.num_batches_tracked": np.array(1233),
        "half": rng.standard_normal(rest // 2).astype(np.float16),
        "mask": np.array([True, False, True]),
        "double": rng.standard_normal(rest - rest // 2),
    }
    base = start_replica(layout_of(model), model, VERSION - 1)
    held = replace(base, version=VERSION, vector=base.vector.copy(), origin=Origin(base, np.zeros(n, np.int32)))
    replicas, steps = [held], []
    for text, exact in (("stc(density=0.1)", held.exact), ("dense()", held.exact[:-3] + bytes(3))):
        here = replicas[-1]
        compressor = fedcomp.parse(text)
        encoded, _ = compressor.encode(_vector(n, 0), compressor.init(n))
        made = here.delta(codec_ids.codec_id(compressor.entropy), encoded, exact)[0]
        steps.append(made.to_bytes())
        replicas.append(replace(here, vector=here.vector.copy(), origin=None).advance(made))
    return World(n, (replicas[0], replicas[1], replicas[2]), (steps[0], steps[1]))


# ---- bodies ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _vector(n: int, which: int) -> Vector:
    """Return a Gaussian vector, a sparse one, a heavy-tailed one, or one of powers of two."""
    rng = np.random.default_rng([n, which])
    gaussian = rng.standard_normal(n, np.float32) * np.float32(0.1)
    powers = np.copysign(np.ldexp(np.float32(1), -rng.geometric(0.6, n)).astype(np.float32), gaussian)
    return (gaussian, np.where(rng.random(n) < 0.02, gaussian, np.float32(0)), gaussian**5, powers)[which]


def _encoded(text: str, which: int, n: int) -> Body:
    compressor = fedcomp.parse(text)
    made, _ = compressor.encode(_vector(n, which), compressor.init(n), seed=3, shapes=world(n).replica.layout.shapes)
    return codec_ids.codec_id(compressor.entropy), made


def _kept(share: float, n: int) -> Indices:
    """Return about that share of the indices, at least the first one."""
    kept = np.random.default_rng(n).random(n) < share
    kept[0] = True
    return np.flatnonzero(kept)


def _sparse(kind: str, share: float, n: int) -> Body:
    """Return a body with positions of a kind that may not be the smallest."""
    indices = _kept(share, n)
    parts = head.write(n, indices.size), positions.write(indices, n, kind), values.write(_vector(n, 0)[indices])
    return 4, b"".join(parts)


def _sparse_levels(kind: str, share: float, n: int) -> Body:
    indices = _kept(share, n)
    levels, magnitudes = (indices % 251).astype(np.uint8), np.geomspace(1, 1e-3, 251).astype(np.float32)
    return 5, SparseLevelsCode(kind).encode(SparseLevels(n, indices, levels % 2 == 1, levels, magnitudes))


def _ternary(number: int, share: float, n: int) -> Body:
    indices = _kept(share, n)
    return number, codec_ids.codec_by_id(number).encode(Ternary(n, indices, indices % 2 == 1, np.float32(0.5)))


def _steps(share: float, bits: int, n: int) -> Body:
    """Return a body of counts of at most that many bits, beside the sign."""
    indices = _kept(share, n)
    rng = np.random.default_rng([n, bits])
    counts = rng.integers(1, 1 << bits, indices.size) * rng.choice([-1, 1], indices.size)
    return STEPS_CODEC, StepsCode().encode(Steps(n, indices, counts.astype(np.int32)))


def _some(text: str, n: int) -> Body:
    """Return a body of the first tensor, or of no tensor where the model has one alone."""
    layout = world(n).replica.layout
    change = np.zeros(n, np.float32)
    if len(layout.filled) > 1:
        part = layout.filled[0][1]
        change[part] = _vector(n, 0)[part]
    compressor = fedcomp.parse(text)
    return encode_change(compressor, change, {}, layout, model=change, seed=3)[:2]


VALUES = partial(_sparse, "Golomb", 1.0)
"""The maker of a body of codec 4."""
STEPS = tuple(partial(_steps, share, bits) for share in (0.01, 0.5, 1.0) for bits in (1, 3, 12, 31))
"""The makers of the bodies of jumps."""


def _makers() -> Iterator[Callable[[int], Body]]:
    for text in TEXTS:
        for which in range(VECTORS):
            yield partial(_encoded, text, which)
    for kind in positions.KINDS:
        for share in (0.5, 1.0):
            yield partial(_sparse, kind, share)
            yield partial(_sparse_levels, kind, share)
    for share in (0.5, 0.9):
        yield from (partial(_ternary, number, share) for number in (2, 12))
    yield from (partial(_some, text) for text in ("dense()", "stc(density=0.1)", "eden(bits=1)", "cgx()"))
    yield from STEPS


MAKERS = tuple(_makers())
MANY = 100_000
"""From this many entries on, one vector for each setting is enough, since the others take long."""


@lru_cache(maxsize=8)
def numbers(n: int) -> tuple[int, ...]:
    """Return the numbers of the makers to use for `n` entries."""
    return tuple(
        number for number in range(len(MAKERS)) if n < MANY or number >= VECTORS * len(TEXTS) or not number % VECTORS
    )


@lru_cache(maxsize=4096)
def body(n: int, number: int) -> Body:
    """Return the body that maker `number` makes for `n` entries."""
    return MAKERS[number](n)


# ---- frames ----------------------------------------------------------------------------------------------------------


def update(n: int, codec: int, body: bytes, exact: bytes | None = None) -> bytes:
    """Return the update that answers the newest message, with exact tensors if they are given."""
    held = world(n).replica
    here = (held.version, held.version, held.layout.digest, held.fingerprint, NUMBER)
    payload = SECONDS.pack(0.25, 0.5) + body + (exact or b"")
    return Frame(Kind.UPDATE, codec, FLAG_EXACT if exact is not None else 0, *here, payload).to_bytes()


def delta(n: int, codec: int, body: bytes, exact: bytes | None = None) -> bytes:
    """Return the delta to the next version; raise `FedcompError` if the body leads to none."""
    held = world(n).replica
    return held.delta(codec, body, held.exact if exact is None else exact)[0].to_bytes()


def answer(n: int, kind: Kind) -> bytes:
    """Return a frame without a payload that answers the newest message."""
    held = world(n).replica
    here = (held.version, held.version, held.layout.digest, held.fingerprint) if kind is Kind.ACK else (0, 0, 0, 0)
    return Frame(kind, codec_ids.NO_BODY, 0, *here, NUMBER).to_bytes()


def server_message(n: int, route: int, training_id: int) -> ServerMessage:
    """Return the next message, with one of the `ROUTES` to the version of the model or to one of the next two."""
    held = world(n)
    key, (one, two) = held.replica.key_frame().to_bytes(), held.steps
    start = held.replica.start_frame().to_bytes()
    both = held.replicas[2].replay_frame([parse_single_frame(step) for step in held.steps]).to_bytes()
    frames = ((), (key,), (one,), (one, two), (key, one, two), (start,), (start, one), (both,), (key, both))[route]
    newest = held.replicas[2 if both in frames else sum(frame in held.steps for frame in frames)]
    acked = ack_of(NUMBER, one) if route % 2 else ack_of(NUMBER - 1, two)
    text = TEXTS[route * 7 % len(TEXTS)]
    return ServerMessage(NUMBER + 1, acked, newest.version, newest.fingerprint, 5, text, frames, training_id)


ROUTES = range(9)
