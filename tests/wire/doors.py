"""The law for bytes that arrive: a value or a `FedcompError`, in bounded memory and time, and the held model is unchanged."""

import signal
import time
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import numpy as np

from fedcomp.core import Vector
from fedcomp.errors import FedcompError
from fedcomp.methods import parse
from fedcomp.split.activations import Activations, read_activations
from fedcomp.split.gradients import read_gradient
from fedcomp.sync import Replica, Subscriber, apply_frame, reply_checks, updates
from fedcomp.sync.fingerprint import fingerprint
from fedcomp.sync.node_registry import NodeRecord, SentModel
from fedcomp.wire import FLAG_DIRECT, Kind, decode_body, frame, server_message
from tests.wire import batches, ends, specimens
from tests.wire.mutants import BODY, SERVER_MESSAGE, Mutant

TO_NODES = (Kind.KEY.name, Kind.START.name, Kind.DELTA.name, Kind.JUMP.name, Kind.REPLAY.name)
MAX_VECTORS = 4
"""Memory that decoding may take, in vectors of the model's size ..."""
MORE_VECTORS = {Kind.REPLAY.name: 1, Kind.ACTIVATION.name: 2}
"""... and these more: the next model beside the held one; the rows of a batch and their changes ..."""
MAX_COPIES = 2
"""... plus copies of the bytes that arrived: the payload of a frame and its body; in a server message the frame as well ..."""
FIXED_BYTES = 5 << 19
"""... plus bytes that do not depend on the size: tables and blocks."""
LIMIT_S = 30
"""Seconds of processor time: a hundred times those of the slowest mutant."""


class BrokenLaw(AssertionError):
    """Bytes that break the law."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The name of the error that `refused` a mutant, or ""; the `peak` of memory in bytes; the `seconds` of processor time."""

    refused: str
    peak: int
    seconds: float


def bound(mutant: Mutant) -> int:
    """Return the bytes that decoding `mutant` may take."""
    copies = MAX_COPIES + (mutant.kind == SERVER_MESSAGE)
    vectors = MAX_VECTORS + MORE_VECTORS.get(mutant.kind, 0)
    return vectors * 4 * mutant.n + copies * len(mutant.data) + FIXED_BYTES


def pass_through(mutant: Mutant) -> Outcome:
    """Give `mutant` to the receiver that it is meant for; raise `BrokenLaw` if it breaks the law."""
    door = DOORS.get(mutant.kind, _server)
    enter, check = door(mutant)
    refused, begin = "", time.process_time()
    with _limited():
        tracemalloc.start()
        try:
            enter()
        except FedcompError as error:
            refused = type(error).__name__
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    seconds = time.process_time() - begin
    if peak > bound(mutant):
        raise BrokenLaw(f"{peak} bytes of memory; {bound(mutant)} are allowed")
    check(bool(refused))
    return Outcome(refused, peak, seconds)


Door = tuple[Callable[[], None], Callable[[bool], None]]
"""The receiver, and the check that follows, which gets whether the bytes were refused."""


def _decoder(mutant: Mutant) -> Door:
    layout, found = specimens.world(mutant.n).replica.layout, list[Vector]()

    def enter() -> None:
        found.append(decode_body(mutant.codec, mutant.data, layout).dense())

    def check(refused: bool) -> None:
        if not refused:
            _vector(found[0], mutant.n)

    return enter, check


def _server(mutant: Mutant) -> Door:
    world, found = specimens.world(mutant.n), list[updates.Update]()
    published = world.replica

    def enter() -> None:
        sent = frame.parse_single_frame(mutant.data)
        model = SentModel(*published.place, published.exact)
        reply_checks.check_reply(sent, NodeRecord(*published.place, specimens.NUMBER, model), published.layout)
        if sent.kind is Kind.UPDATE:
            found.append(updates.decode_update(sent, published))

    def check(refused: bool) -> None:
        _need(not (refused and found), "an update that was decoded and refused")
        for update in found:
            total = np.zeros(mutant.n, np.float32)
            update.change.add_to(total)
            _vector(total, mutant.n)
            published.layout.check_exact(update.exact)
        _same(published, world)

    return enter, check


def _replica(mutant: Mutant) -> Door:
    world = specimens.world(mutant.n)
    held, found, start = world.copy(), list[Replica](), world.replica.arrays()

    def enter() -> None:
        found.append(apply_frame(held, frame.parse_single_frame(mutant.data), make_start=lambda: start))

    def check(refused: bool) -> None:
        if refused:
            _same(held, world)
        else:
            _whole(found[0])

    return enter, check


def _node(mutant: Mutant) -> Door:
    """Do what `CompressionMod` does before the ClientApp runs; it parses the compressor only later."""
    world = specimens.world(mutant.n)
    state, start = Subscriber(replica=world.copy(), number=specimens.NUMBER), world.replica.arrays()

    def enter() -> None:
        message, frames = server_message.parse_server_message(mutant.data)
        with suppress(ValueError):
            parse(message.uplink)
        state.follow(message, frames, make_start=lambda: start)

    def check(_: bool) -> None:
        _need(state.replica is not None, "the node has lost its model")
        _whole(state.replica or world.replica)

    return enter, check


def _upper_layers(mutant: Mutant) -> Door:
    """Read a batch of activations with what both ends hold of the known samples."""
    batch, found = batches.batch(mutant.n), list[Activations]()
    bounds = {"max_batch": 2 * batches.SAMPLES, "max_samples": 1000}

    def enter() -> None:
        sent = frame.parse_single_frame(mutant.data)
        is_direct = bool(sent.flags & FLAG_DIRECT)
        found.append(read_activations(sent, batch.memory, (batch.row_size,), **bounds, direct=is_direct))

    def check(_: bool) -> None:
        for each in found:
            shape = (each.ids.size, batch.row_size)
            _need(each.rows.shape == shape and bool(np.isfinite(each.rows).all()), "rows that are no activations")
            _need(each.labels.shape == (each.first.sum(),), "labels of other samples than the new ones")
        known = batch.memory.ids.tolist() == list(range(batches.SAMPLES))
        _need(known and batch.memory.digest(batch.memory.ids) == batch.digest, "the memory was changed")

    return enter, check


def _lower_layers(mutant: Mutant) -> Door:
    size, found = batches.batch(mutant.n).row_size, list[Vector]()

    def enter() -> None:
        sent = frame.parse_single_frame(mutant.data)
        found.append(read_gradient(sent, batches.SAMPLES, (size,), specimens.NUMBER))

    def check(_: bool) -> None:
        for gradient in found:
            _need(gradient.shape == (batches.SAMPLES, size), "a gradient of another shape")
            _vector(gradient.ravel(), mutant.n)

    return enter, check


def _end(mutant: Mutant) -> Door:
    return ends.door(mutant.kind, mutant.codec, mutant.data, _need)


def _vector(vector: Vector, n: int) -> None:
    _need(vector.dtype == np.float32 and vector.shape == (n,), f"a vector of {vector.dtype} {vector.shape}")
    _need(bool(np.isfinite(vector).all()), "a vector with NaN or infinity")


def _same(replica: Replica, world: specimens.World) -> None:
    kept = world.replica.vector.tobytes() == replica.vector.tobytes() and world.replica.exact == replica.exact
    _need(
        kept and world.replica.fingerprint == fingerprint(replica.vector, replica.exact), "the held model was changed"
    )


def _whole(replica: Replica) -> None:
    _vector(replica.vector, replica.layout.n)
    replica.layout.check_exact(replica.exact)
    _need(
        replica.fingerprint == fingerprint(replica.vector, replica.exact),
        "a model without the fingerprint that it claims",
    )
    replica.arrays()


def _need(holds: bool, text: str) -> None:
    if not holds:
        raise BrokenLaw(text)


DOORS: dict[str, Callable[[Mutant], Door]] = {
    BODY: _decoder,
    SERVER_MESSAGE: _node,
    **dict.fromkeys(TO_NODES, _replica),
    Kind.ACTIVATION.name: _upper_layers,
    Kind.GRADIENT.name: _lower_layers,
    **dict.fromkeys(ends.KINDS, _end),
}
"""The receivers of the kinds; the server gets all others."""


@contextmanager
def _limited() -> Generator[None]:
    """Stop the block after `LIMIT_S` seconds of processor time."""

    def stop(number: int, place: FrameType | None) -> None:
        raise BrokenLaw(f"it takes longer than {LIMIT_S} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
