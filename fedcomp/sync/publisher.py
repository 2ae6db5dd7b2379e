"""The publisher's side of the protocol: one model, whose versions are published once, with the same bytes for every node."""

import secrets
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Vector, block_slices
from fedcomp.errors import CorruptError, DivergedError
from fedcomp.memory import LinearFeedback, State
from fedcomp.quantize import OnGrid
from fedcomp.quantized import Dense, Indices, QuantizedVector, Sparse
from fedcomp.sync.encoding import encode_change
from fedcomp.sync.history import History, Route
from fedcomp.sync.jumps import Jumps
from fedcomp.sync.node_registry import UNKNOWN_VERSION, NodeRegistry, SentModel
from fedcomp.sync.replica import DeltaStep, Replica
from fedcomp.sync.reply_checks import check_reply
from fedcomp.sync.updates import Undecoded, Update, decode_update
from fedcomp.wire import (
    COUNTER_BITS,
    FLAG_GRID,
    Ack,
    Frame,
    Kind,
    ServerMessage,
    ack_of,
    decode_body,
    parse_single_frame,
)

NAME_BITS = 63 - COUNTER_BITS
FIRST_PAUSE = 4
"""After a node first made all estimates start from zero, this many versions must pass before it may do so again."""
MAX_DOUBLINGS = 30


def first_number() -> int:
    """Return a number from which a server counts its messages: a random name of the server above `COUNTER_BITS` zeros.

    By this name, nodes distinguish a restarted server from the previous one, even if it continues from an old checkpoint, and
    they need no clock.  Epochs are numbers of messages too, and at most 2^63 - 1.
    """
    return (1 + secrets.randbelow((1 << NAME_BITS) - 1)) << COUNTER_BITS


@dataclass(frozen=True, slots=True)
class Reply:
    """A valid reply: its frame, the update in it if there is one, and the acknowledgement that names it.

    The update starts from a version that is `staleness` versions older than the published version.
    """

    frame: Frame
    update: Update | None
    ack: Ack
    staleness: int = 0

    def undecoded(self, published: Replica) -> "Reply":
        """Return this reply to `published` with an update that is decoded each time it is used, and takes memory only then."""
        change = Undecoded(self.frame, published.layout, published.exact)
        return replace(self, update=self.update and replace(self.update, change=change))


def _without(vector: Vector, indices: Indices) -> Vector:
    """Return a copy of `vector` with zeros at `indices`."""
    copy = vector.copy()
    copy[indices] = 0
    return copy


RESIDUAL = LinearFeedback()
"""The memory whose residual, under its name in any state, is the change that was not published yet."""


@dataclass(slots=True)
class Publisher:
    """A published model, the memory of its compressor, and what is known of each node.

    `number` is the number of the last message to any node.  `epoch` numbers the sum of increments, 0 at first; it is the number
    of a message, so no epoch occurs twice.  `training_id` names the training through all restarts, 0 if it has no name.
    `start` is the start frame of the first version, if nodes can make this version themselves.
    """

    replica: Replica
    history: History
    memory: State = field(default_factory=dict[str, Any])
    nodes: NodeRegistry = field(default_factory=NodeRegistry)
    number: int = field(default_factory=first_number)
    epoch: int = 0
    training_id: int = 0
    start: Frame | None = None
    _key: tuple[tuple[int, int], bytes] | None = None
    _jumps: Jumps = field(default_factory=Jumps)

    @classmethod
    def begin(cls, replica: Replica, training_id: int = 0, *, shared_start: bool = False) -> "Publisher":
        """Return the publisher whose first version is `replica`; with `shared_start`, nodes can make it themselves."""
        start = replica.start_frame() if shared_start else None
        return cls(replica, History(replica.key_frame().size), training_id=training_id, start=start)

    def publish(self, change: Vector, exact: bytes, compressor: Compressor, seed: int, *, keep: bool = False) -> None:
        """Publish the next version: `change`, float32 (n,), as `compressor` encodes it, and the bytes of the exact tensors.

        The part that compression leaves out stays in the memory for later versions, and so do the rounding errors of the
        float32 weights.  The compressor may differ from version to version: one without a memory publishes the residual that an
        earlier one has left, too, and the state of any other memory is kept until its compressor is used again.

        With `keep`, the vector of the version before stays as it is, for those who still read it.

        A change that cannot be published is left out of the memory, too.  If entries leave or enter a mask, the memory of
        these entries is dropped.

        Raises:
            NonFiniteError: The change, alone or with the residual, holds NaN or infinity; the error names the tensor.
            DivergedError: The next model would not be finite.

        """
        layout = self.replica.layout
        if RESIDUAL.name in compressor.memory.vectors:  # it keeps what the grid takes away
            compressor = replace(compressor, quantizer=OnGrid(compressor.quantizer))
        kept = self.memory
        if (moved := layout.moved(self.replica.exact, exact)) is not None:
            own = compressor.select(self.memory, layout.n)
            kept = kept | {name: _without(own[name], moved) for name in compressor.memory.vectors}
        left = self.memory.get(RESIDUAL.name) if not compressor.memory.vectors else None
        if left is not None:
            with np.errstate(over="ignore"):  # what is too large is refused below
                change = change + (left if moved is None else _without(left, moved))
        codec, body, memory = encode_change(
            compressor, change, kept, layout, model=self.replica.vector, seed=seed, server_round=self.replica.version
        )
        self.memory |= memory
        try:
            frame, step = self.replica.delta(codec, body, exact, grid=True)
        except CorruptError as error:
            if RESIDUAL.name in compressor.memory.vectors:  # undo the effect of encoding, up to rounding
                for lost in (decode_body(codec, body, layout), Dense(-change)):
                    self.memory |= RESIDUAL.rollback(lost, self.memory)
            raise DivergedError(f"version {self.replica.version + 1} cannot be published: {error}") from error
        if RESIDUAL.name in memory and step.counts is None:  # on the grid, the counts hold what is rounded off
            lost = _rounding_error(decode_body(codec, body, layout), self.replica.vector, step)
            self.memory |= RESIDUAL.rollback(lost, self.memory)
        keeps = RESIDUAL.name in self.memory
        if left is not None:
            del self.memory[RESIDUAL.name]
        if (origin := self.replica.origin) is not None and step.counts is None and keeps:  # its counts end here
            kept = RESIDUAL.init(layout.n) | self.memory
            self.memory |= RESIDUAL.rollback(Dense(origin.rounded_off()), kept)
        self.replica = self.replica.after(step, frame.version, keep=keep)
        self.history.append(frame)

    def forget(self, compressor: Compressor) -> None:
        """Drop the memory of `compressor`, and any residual: everything that was left out so far."""
        for name in {*compressor.memory.vectors, RESIDUAL.name}:
            self.memory.pop(name, None)

    def message_to(self, node: int, uplink: str, seed: int) -> tuple[ServerMessage, Route]:
        """Return the next message to `node`, and the route in it; `uplink` is the compressor that `node` answers with.

        The message names the training, because a node may take part in several trainings that start from the same model.
        """
        self.number += 1
        record = self.nodes[node]
        certain = not record.may_be_ahead
        record.number = self.number
        record.sent = SentModel(*self.replica.place, self.replica.exact)
        route = self.route(record.version, record.fingerprint, certain=certain, needs_key=record.needs_key)
        place, ids = self.replica.place, (self.training_id, self.epoch)
        message = ServerMessage(self.number, record.acked, *place, seed, uplink, route.frames, *ids, record.returned)
        return message, route

    def route(self, version: int, fingerprint: int, *, certain: bool = True, needs_key: bool = False) -> Route:
        """Return the cheapest exact route from a version to the published one; each jump is made once.

        Unless it is `certain` that the node still holds the version, the route must also work from later versions: a node whose
        reply was lost is ahead of the version that it confirmed.  A node that `needs_key` cannot make the first version itself.
        """
        if (route := self._missed(version, fingerprint, certain=certain)) is not None:
            return route
        if self.start is not None and not needs_key:
            missed = self._missed(self.start.version, self.start.after)
            if missed is not None:
                start = self.start.to_bytes()
                return Route((start, *missed.frames), len(start) + missed.catch_up_bytes)
        first = self.replica if self.replica.origin is None else self.replica.origin.base
        if self._key is None or self._key[0] != first.place:
            self._key = (first.place, first.key_frame(smallest=True).to_bytes())
        missed = self._missed(*first.place) or Route((), 0)
        return Route((self._key[1], *missed.frames), len(self._key[1]) + missed.catch_up_bytes, key=True)

    def _missed(self, version: int, fingerprint: int, *, certain: bool = True) -> Route | None:
        """Return the smallest of deltas, replay and jumps from a version on; None if there is none.

        The newest version needs no frames.  Deltas off the grid are one replay, with the exact tensors once, if that saves
        much.  A node that may be ahead skips deltas that it already has, so deltas and replays are safe for it.  A jump needs
        its start: every node that confirmed a later version holds the origin; any other start counts only if `certain`.
        """
        replica = self.replica
        if (version, fingerprint) == replica.place:
            return Route((), 0)
        deltas = self.history.since(version, fingerprint)
        routes = [tuple(data for _, data in deltas)] if deltas else []
        if (one := self._along(deltas, certain=certain)) is not None:
            routes.append((one,))
        # A jump from the origin holds all entries that ever moved: if it is likely larger than another route, it is not made.
        may_help = not routes or (len(deltas) > 1 and min(map(_size, routes)) > self._jumps.origin_size)
        if may_help and replica.origin is not None and replica.origin.base.version <= version < replica.version:
            routes.append((self._jumps.from_origin(replica.origin, replica),))
        if not routes:
            return None
        least = min(routes, key=_size)
        return Route(least, max(0, _size(least) - self.history.newest_size))

    def make_jumps(self, nodes: Iterable[int]) -> bool:
        """Make the jumps that the next messages to `nodes` need, and return whether there are any.

        They are made from the newest start on: each sum is part of the next one.
        """
        records = [self.nodes[node] for node in nodes]
        starts = {(record.version, record.fingerprint, not record.may_be_ahead) for record in records}
        jumps = [
            self._along(self.history.since(version, fingerprint), certain=certain)
            for version, fingerprint, certain in sorted(starts, reverse=True)
        ]
        return any(jump is not None for jump in jumps)

    def _along(self, deltas: Sequence[tuple[Frame, bytes]], *, certain: bool) -> bytes | None:
        """Return one frame that replaces two or more `deltas`; None if there is none that is safe from an un`certain` start."""
        if len(deltas) > 1 and (certain or not any(frame.flags & FLAG_GRID for frame, _ in deltas)):
            return self._jumps.along(tuple(frame for frame, _ in deltas), self.replica)
        return None

    def parse_reply(self, node: int, data: bytes) -> Reply:
        """Return the reply of `node` in `data`; a node that asks for a key frame gets one with its next message.

        The reply starts from the version in that message, which may be older than the published version by now.

        Raises `FedcompError` for a damaged reply, for a reply that does not answer the newest message to the node, and for a
        request for a key frame.  No reply counts before `confirm`.
        """
        frame = parse_single_frame(data)
        self.check_reply(node, frame)
        record = self.nodes[node]
        if frame.kind is Kind.RESYNC:
            record.version, record.needs_key = UNKNOWN_VERSION, True
            raise CorruptError("the node cannot follow; it gets a key frame next")
        update = decode_update(frame, self.replica, record.sent.exact) if frame.kind is Kind.UPDATE else None
        return Reply(frame, update, ack_of(frame.after, data), self.replica.version - frame.version)

    def check_reply(self, node: int, frame: Frame) -> None:
        """Raise `FedcompError` unless `frame` answers the newest message to `node`, for the first time."""
        check_reply(frame, self.nodes[node], self.replica.layout)

    def confirm(self, node: int, reply: Reply) -> None:
        """Record that `node` answered, and that it holds the version that it answered from.

        The exact tensors of the model that it was sent are dropped: they may be large, and another set for each version.
        """
        record, frame = self.nodes[node], reply.frame
        record.answered, record.version, record.fingerprint = frame.after, frame.version, frame.before
        record.sent = replace(record.sent, exact=b"")  # only the first answer needs them

    def forget_sent(self, busy: Set[int] = frozenset()) -> None:
        """Drop the exact tensors of older versions that nodes were sent, but for those that are `busy` answering.

        No answer from such a version would count any more, and nodes that never answer may be many.
        """
        if self.replica.layout.exact_size:
            for node, record in self.nodes.items():
                if record.sent.exact and record.sent.version < self.replica.version and node not in busy:
                    record.sent = replace(record.sent, exact=b"")

    def acknowledge(self, node: int, reply: Reply, *, summed: bool, returned: float = 0.0) -> None:
        """Record that the update in `reply`, if any, went into the model, and if `summed`, into a sum of increments.

        The share `returned` of the update, at least 0 and below 1, did not count, and goes back to the node.  Call this method
        only after `publish`: an update that is not acknowledged goes back to its node.
        """
        if reply.update is not None:
            record = self.nodes[node]
            record.acked, record.returned, record.summed = reply.ack, returned, summed

    def lost_its_estimate(self, node: int, reply: Reply) -> bool:
        """Return whether a node starts an estimate from zero although the sum holds increments from it."""
        return reply.update is not None and reply.update.first and self.nodes[node].summed

    def may_restart(self, node: int) -> bool:
        """Return whether all estimates may start from zero because `node` has lost its own.

        Each pause is twice as long as the previous one, so that no node undoes more than a few rounds of all nodes.
        """
        record = self.nodes[node]
        if not record.restarts:
            return True
        return self.replica.version >= record.restarted + (FIRST_PAUSE << min(record.restarts - 1, MAX_DOUBLINGS))

    def begin_epoch(self, lost: Iterable[int] = ()) -> None:
        """Start the next epoch: the sum of increments starts from zero, and so does every node's estimate.

        The nodes `lost` have lost their estimates.
        """
        for node in lost:
            record = self.nodes[node]
            record.restarts, record.restarted = record.restarts + 1, self.replica.version
        self.epoch = self.number
        for record in self.nodes.values():
            record.summed = False


def _size(frames: tuple[bytes, ...]) -> int:
    return sum(map(len, frames))


def _rounding_error(change: QuantizedVector, vector: Vector, step: DeltaStep) -> QuantizedVector:
    """Return `change` minus the actual change of `vector` by `step`: changes below a weight's last bit have no effect."""
    sparse = change.sparse()
    values = change.dense() if sparse is None else sparse.values
    error = np.empty_like(values)
    for part in block_slices(error.size):
        old = vector[part if sparse is None else sparse.indices[part]].astype(np.float64)
        error[part] = values[part] - (step.values[part] - old)
    return Dense(error) if sparse is None else Sparse(sparse.n, sparse.indices, error)
