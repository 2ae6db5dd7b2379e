"""A subscriber's side of the protocol: it follows a publisher's versions, and sends updates that count exactly once."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.errors import StaleError, UnknownFormatError, VersionError
from fedcomp.memory import Incremental, State
from fedcomp.methods import parse
from fedcomp.sync.apply import MakeStart, apply_frame
from fedcomp.sync.clipping import clip_exact
from fedcomp.sync.difference import is_difference, is_fine_tuned
from fedcomp.sync.encoding import derive_seed, encode_change
from fedcomp.sync.replica import FrameDecoder, Replica, split_payload
from fedcomp.sync.reply_checks import check_trained
from fedcomp.wire import (
    COUNTER_BITS,
    FLAG_EXACT,
    FLAG_FIRST,
    NO_BODY,
    SECONDS,
    Ack,
    Frame,
    Kind,
    Layout,
    ServerMessage,
    ack_of,
    change_of,
    check_ties,
    decode_body,
    dtype_of,
    parse_single_frame,
    to_numpy,
)

MAX_PAST_SERVERS = 16
"""The number of former servers that a node remembers."""
CHECKED_VERSION = 5
"""A node checks its first update and that to this version: in a training that starts from zero, the first tells nothing."""
LIKE_A_DIFFERENCE = (
    "the reply looks like a difference: it is far nearer to zero than to the model that was sent; if it is one, reply with the "
    "trained model itself"
)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a node learned: the `change` of the vector, numpy or torch, float32 (n,), and the bytes of the `exact` tensors.

    `remarks` are sentences for the log: the trained tensors can be sent, but may not be what was meant.
    """

    change: Any
    exact: bytes
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class Subscriber:
    """A node's replica, the memory of its compressor, and its last update until the server has acknowledged it.

    `number`: the number of the last message followed.  `acked_number`: the number of the last message whose answer the server
    accepted.  `pending`: the update frame that answers message `pending_number`, made by the compressor `uplink`; empty if
    there is none.  `node`: the id under which the node took part, 0 at first.  `past_servers`: the names of former servers.
    """

    replica: Replica | None = None
    memory: State = field(default_factory=dict[str, Any])
    number: int = 0
    pending: bytes = b""
    pending_number: int = 0
    uplink: str = ""
    acked_number: int = 0
    node: int = 0
    past_servers: tuple[int, ...] = ()

    @property
    def held(self) -> Replica:
        """The replica; raise `VersionError` if there is none."""
        if self.replica is None:
            raise VersionError("no model is held; a key frame is needed")
        return self.replica

    def is_repeated(self, message: ServerMessage) -> bool:
        """Return whether `message` has arrived before, so that `pending` is its answer.

        The same update must answer it again, because the server may have accepted this update by now.  Raises `StaleError` for
        a message that is older than the last one followed, and for a message of a server that was replaced.
        """
        server, followed = (number >> COUNTER_BITS for number in (message.number, self.number))
        if server in self.past_servers or (server == followed and message.number < self.number):
            raise StaleError(f"message {message.number}; message {self.number} was followed already")
        return message.number == self.pending_number

    def settle(self, acked: Ack, node: int, returned: float = 0.0) -> int:
        """Forget the pending update if `acked` names it; otherwise return its content to the memory.

        The share `returned` of an accepted update did not count, and goes back to the memory.  If this node has returned under
        another id, the server cannot say what it accepted: most likely everything.

        Returns the number of the message whose answer was pending and was accepted, 0 if there is none.
        """
        accepted = 0
        if node != self.node:
            accepted = self.pending_number
            self.node, self.acked_number = node, acked.number
            self._drop_pending()
        is_accepted = bool(self.pending) and ack_of(self.pending_number, self.pending) == acked
        if acked.number != self.acked_number and not is_accepted:
            # The server or this node has returned to an older state: the server's sum and the node's estimate differ.
            self._forget_estimate()
        self.acked_number = acked.number
        if is_accepted:
            accepted = self.pending_number
            if returned:
                self._take_back(returned)
        else:
            self._take_back()
        self._drop_pending()
        return accepted

    def _take_back(self, share: float = 1.0) -> None:
        """Return this share of the pending update, if there is one, to the memory."""
        if not self.pending or self.replica is None:
            return
        frame, layout = parse_single_frame(self.pending), self.replica.layout
        if frame.layout == layout.digest:
            body, _ = split_payload(frame, frame.payload[SECONDS.size :], layout, b"")
            lost = decode_body(frame.codec, body, layout, layout.changeable(self.replica.exact))
            memory = parse(self.uplink).memory
            # A third party's memory may not support shares; only `return_rest` needs them.
            part = memory.rollback(lost, self.memory) if share == 1 else memory.rollback(lost, self.memory, share)
            self.memory |= part

    def _drop_pending(self) -> None:
        self.pending, self.pending_number = b"", 0

    def follow(
        self,
        message: ServerMessage,
        frames: tuple[Frame, ...],
        decoder: FrameDecoder | None = None,
        make_start: MakeStart | None = None,
    ) -> None:
        """Bring the replica to the version of `message` by its `frames`, as `apply_frame` does with the other arguments.

        A key frame of another model empties the memory.  Raises `FedcompError` if the frames do not lead to that version;
        the replica is then at the last version that they reached.
        """
        for frame in frames:
            before = self.replica
            self.replica = apply_frame(before, frame, decoder, make_start)
            if before is not None and before.layout.digest != self.replica.layout.digest:
                self.memory = {}
        replica = self.held
        if (replica.version, replica.fingerprint) != (message.version, message.fingerprint):
            raise VersionError(
                f"the frames lead to version {replica.version} ({replica.fingerprint:016x}); "
                f"version {message.version} ({message.fingerprint:016x}) is needed"
            )
        if (server := self.number >> COUNTER_BITS) not in (0, message.number >> COUNTER_BITS):
            self.past_servers = (*self.past_servers, server)[-MAX_PAST_SERVERS:]
        self.number = message.number

    def learned(self, trained: Mapping[str, Any]) -> "Learned":
        """Return what training changed; `trained` are the tensors after it, numpy arrays or torch tensors.

        Tensors on a device stay there: `update` copies only what is sent and kept to the host.  Raises `ValueError` if
        `trained` does not fit the model, or holds a number that cannot be sent or different values in tied tensors, and
        `DivergedError`, one of them, for weights beyond `max_magnitude`.
        """
        replica = self.held
        layout = replica.layout
        change, exact = change_of(layout, trained, replica.vector)
        check_ties(layout.tensors, trained)
        check_trained(change, replica)
        is_new = not self.acked_number
        remarks: list[str] = []
        if (is_new or replica.version == CHECKED_VERSION) and is_difference(change, replica.vector):
            # Training may also shrink a model or replace it, so this is no error.
            remarks.append(LIKE_A_DIFFERENCE)
        if is_new:
            remarks += _rounded(layout, trained)
        return Learned(change, exact, tuple(remarks))

    def update(
        self,
        learned: "Learned",
        message: ServerMessage,
        identity: int,
        decode_seconds: float,
        max_norm: float | None = None,
    ) -> bytes:
        """Return the update frame that answers `message`, and keep it as `pending`.

        `identity` makes the random numbers of this node differ from those of other nodes.  `max_norm` is the largest l2 norm
        of the change that is sent, exact tensors included; None for no bound.

        Raises:
            UnknownFormatError: The server asks for a compressor that is unknown here.
            ValueError: The change cannot be sent; the memory is unchanged.

        """
        replica, change, exact = self.held, learned.change, learned.exact
        layout = replica.layout
        if max_norm is not None:
            exact, max_norm = clip_exact(exact, replica, max_norm)
        compressor = known_compressor(message.uplink)
        first = compressor.memory.incremental and cast(Incremental, compressor.memory).begins(
            compressor.select(self.memory, layout.n), message.epoch
        )
        # The server may change the compressor; another compressor's memory is kept until that compressor is used again.
        more = {"estimate_epoch": message.epoch, "max_norm": max_norm}
        start_s = time.thread_time()
        codec, body, memory = self._encoded(compressor, change, self.memory, message, identity, **more)
        seconds = SECONDS.pack(time.thread_time() - start_s, decode_seconds)
        self.memory |= memory
        frame = self._update(message.number, codec, seconds + body, exact, first=first)
        self.pending, self.pending_number, self.uplink = frame.to_bytes(), message.number, message.uplink
        return self.pending

    def returned_model(
        self, arrays: Mapping[str, NDArray[Any]], message: ServerMessage, identity: int, decode_seconds: float
    ) -> bytes | None:
        """Return an update frame that holds a model in the answer to an evaluate message; training does not depend on it.

        The frame is not kept as `pending`, and the memory is not used.  Returns None if `message` names a compressor with a
        memory: then the server expects no model; and for `arrays` that are none, such as gradients (`is_fine_tuned`).  Raises
        as `update` does.
        """
        replica = self.held
        compressor = known_compressor(message.uplink)
        if compressor.memory.vectors:
            return None
        change, exact = replica.layout.flatten(arrays, replica.vector)
        if not is_fine_tuned(change, replica.vector):
            return None
        check_ties(replica.layout.tensors, arrays)
        start_s = time.thread_time()
        codec, body, _ = self._encoded(compressor, change, {}, message, identity)
        seconds = SECONDS.pack(time.thread_time() - start_s, decode_seconds)
        return self._update(message.number, codec, seconds + body, exact).to_bytes()

    def _forget_estimate(self) -> None:
        if self.uplink and (memory := parse(self.uplink).memory).incremental:
            for name in memory.init(1):
                self.memory.pop(name, None)
            self._drop_pending()

    def _encoded(
        self, compressor: Compressor, change: Any, memory: State, message: ServerMessage, identity: int, **more: Any
    ) -> tuple[int, bytes, State]:
        """Return what `encode_change` returns for a change of the replica."""
        held, seed = self.held, derive_seed(message.seed, identity)
        arguments = {"model": held.vector, "seed": seed, "server_round": held.version} | more
        free = held.layout.changeable(held.exact)
        return encode_change(compressor, change, memory, held.layout, free, **arguments)

    def _update(self, number: int, codec: int, payload: bytes, exact: bytes, *, first: bool = False) -> Frame:
        flags = (FLAG_FIRST if first else 0) | (0 if exact == self.held.exact else FLAG_EXACT)
        return self._reply(Kind.UPDATE, number, codec, flags, payload + exact if flags & FLAG_EXACT else payload)

    def ack(self, number: int) -> bytes:
        """Return the frame that confirms the version of the replica, in answer to message `number`."""
        return self._reply(Kind.ACK, number).to_bytes()

    def _reply(self, kind: Kind, number: int, codec: int = NO_BODY, flags: int = 0, payload: bytes = b"") -> Frame:
        replica = self.held
        version, digest, fingerprint = replica.version, replica.layout.digest, replica.fingerprint
        return Frame(kind, codec, flags, version, version, digest, fingerprint, number, payload)


def known_compressor(uplink: str) -> Compressor:
    """Return the compressor with this text; raise `UnknownFormatError` for one that is unknown here."""
    try:
        return parse(uplink)
    except ValueError as error:
        raise UnknownFormatError(f"the server asks for an uplink that is unknown here: {error}") from error


def resync(number: int) -> bytes:
    """Return the frame that asks for a key frame, in answer to message `number`."""
    return Frame(Kind.RESYNC, NO_BODY, 0, 0, 0, 0, 0, number).to_bytes()


def _rounded(layout: Layout, trained: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each tensor of integers or bools whose trained numbers are rounded: it may never change."""
    for tensor in layout.exact_tensors:
        array = trained[tensor.name]
        if dtype_of(array) != tensor.dtype and (number := tensor.first_rounded(to_numpy(array))) is not None:
            yield (
                f"tensor {tensor.name!r} is {tensor.dtype}, by the first model, so {number:g} is rounded; if it is trained, "
                "start with a floating one"
            )
