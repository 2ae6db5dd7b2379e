"""The law of bytes that arrive: a value or a `FedcompError`, in bounded memory and time, and what was held is as it was."""

import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import numpy as np

from fedcomp.core.types import Vector
from fedcomp.errors import FedcompError
from fedcomp.methods import parse
from fedcomp.sync import Subscriber, updates
from fedcomp.sync.fingerprint import fingerprint
from fedcomp.sync.node_registry import NodeRecord
from fedcomp.sync.replica import Replica, apply_frame
from fedcomp.wire import codec_ids, frame, server_message
from fedcomp.wire.frame import Kind
from tests.wire import specimens
from tests.wire.mutants import BODY, INSTRUCTION, Mutant

LAYOUTS = 4
"""Times the bytes of the declared vector that decoding may take,"""
COPIES = 2
"""beside copies of the bytes that came, a frame's payload and its body, and in an instruction the frame;"""
STEADY = 5 << 19
"""and what takes as much however short the vector is: tables, and blocks of a size of their own."""
LIMIT_S = 30
"""Seconds of processor time: a hundred times what the slowest takes."""


class BrokenLaw(AssertionError):
    """Bytes that did what no bytes may do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: the name of the error that `refused` it, or nothing; bytes at the `peak`; processor seconds."""

    refused: str
    peak: int
    seconds: float


def bound(mutant: Mutant) -> int:
    """Return the bytes that decoding `mutant` may take."""
    copies = COPIES + (mutant.kind == INSTRUCTION)
    return LAYOUTS * 4 * mutant.n + copies * len(mutant.data) + STEADY


def pass_through(mutant: Mutant) -> Outcome:
    """Send `mutant` through the door that it is meant for; raise `BrokenLaw` where it breaks the law."""
    door = {BODY: _decoder, INSTRUCTION: _node, Kind.KEY.name: _replica, Kind.DELTA.name: _replica}.get(
        mutant.kind, _server
    )
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
"""What is done with the bytes, and, once it was refused or not, the check that all is well."""


def _decoder(mutant: Mutant) -> Door:
    found: list[Vector] = []

    def enter() -> None:
        found.append(codec_ids.codec_by_id(mutant.codec).decode(mutant.data, n=mutant.n).dense())

    def check(refused: bool) -> None:
        if not refused:
            _vector(found[0], mutant.n)

    return enter, check


def _server(mutant: Mutant) -> Door:
    world, found = specimens.world(mutant.n), list[updates.Update]()
    published = world.replica

    def enter() -> None:
        sent = frame.parse_single_frame(mutant.data)
        updates.check_reply(sent, NodeRecord(published.version, published.fingerprint, specimens.NUMBER), published)
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
    held, found = world.copy(), list[Replica]()

    def enter() -> None:
        found.append(apply_frame(held, frame.parse_single_frame(mutant.data)))

    def check(refused: bool) -> None:
        if refused:
            _same(held, world)
        else:
            _whole(found[0])

    return enter, check


def _node(mutant: Mutant) -> Door:
    """What `CompressionMod` does before the ClientApp runs; the compressor that is asked for it looks at later."""
    world = specimens.world(mutant.n)
    state = Subscriber(replica=world.copy(), number=specimens.NUMBER)

    def enter() -> None:
        asked, frames = server_message.parse_server_message(mutant.data)
        with suppress(ValueError):
            parse(asked.uplink)
        state.follow(asked, frames)

    def check(_: bool) -> None:
        _need(state.replica is not None, "the node has lost its model")
        _whole(state.replica or world.replica)

    return enter, check


def _vector(vector: Vector, n: int) -> None:
    _need(vector.dtype == np.float32 and vector.shape == (n,), f"a vector of {vector.dtype} {vector.shape}")
    _need(bool(np.isfinite(vector).all()), "a vector with NaN or infinity")


def _same(replica: Replica, world: specimens.World) -> None:
    kept = world.replica.vector.tobytes() == replica.vector.tobytes() and world.replica.exact == replica.exact
    _need(
        kept and world.replica.fingerprint == fingerprint(replica.vector, replica.exact), "the model held was touched"
    )


def _whole(replica: Replica) -> None:
    _vector(replica.vector, replica.layout.n)
    replica.layout.check_exact(replica.exact)
    _need(
        replica.fingerprint == fingerprint(replica.vector, replica.exact), "a model that is not the one its mark names"
    )
    replica.arrays()


def _need(holds: bool, sentence: str) -> None:
    if not holds:
        raise BrokenLaw(sentence)


@contextmanager
def _limited() -> Iterator[None]:
    """Break off what takes `LIMIT_S` of the processor's time."""

    def stop(number: int, place: FrameType | None) -> None:
        raise BrokenLaw(f"it takes longer than {LIMIT_S} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
