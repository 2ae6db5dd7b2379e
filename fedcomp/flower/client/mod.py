"""The node's side: a Flower mod that turns frames into the arrays that a ClientApp expects, and its answer into a frame."""

import time
from logging import WARNING
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict

from fedcomp.errors import FedcompError, NonFiniteError, StaleError, UnknownFormatError
from fedcomp.flower import records
from fedcomp.flower._compat import ClientAppCallable, log
from fedcomp.flower.client.client_state import ClientState, split_epoch
from fedcomp.flower.client.in_memory import DecodeCache
from fedcomp.flower.client.state_store import StateStore, open_store, shared_of
from fedcomp.flower.lazy_array import record_of, to_record
from fedcomp.memory import Incremental
from fedcomp.methods import parse
from fedcomp.sync import Replica
from fedcomp.wire import (
    FLAG_EXACT,
    FLAG_FIRST,
    NO_BODY,
    SECONDS,
    Frame,
    Kind,
    ServerMessage,
    codec_id,
    parse_server_message,
)


class CompressionMod:
    """Put it into ``ClientApp(mods=[CompressionMod()])``; it needs no settings, the server says how to answer.

    A message from a server without `CompressedStrategy` passes untouched.  The mod holds nothing itself: the node's state
    is in ``Context.state``, or, with ``state-dir`` in the node's config, in files of that folder, and outlives a restart.
    """

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Return the ClientApp's reply to `message`, compressed."""
        found = records.packed(message.content) if message.has_content() else None
        if found is None:
            return call_next(message, context)
        with open_store(context) as home:
            return self._answer(message, context, call_next, home, *found)

    def _answer(
        self, message: Message, context: Context, call_next: ClientAppCallable, home: StateStore, key: str, data: bytes
    ) -> Message:
        begin = time.perf_counter()
        asked, frames = parse_server_message(data)
        state, shared = home.load(asked.training_id, _places(asked, frames)), shared_of(context)
        if asked.number < state.number:
            raise StaleError(f"instruction {asked.number}; instruction {state.number} was followed already")
        if asked.number == state.pending_number:
            # The same message once more: so is the answer, for this uplink may have been taken by now.
            answer = RecordDict(dict(state.answer.items()))
            answer[state.answer_key] = records.pack(state.pending)
            return Message(answer, reply_to=message)
        if state.node not in (0, context.node_id):
            said = "fedcomp: node %d remembers here, and this is node %d: it has a new key, or they share a state-dir"
            log(WARNING, said, state.node, context.node_id)
        state.settle(asked.acked, context.node_id)
        try:
            state.follow(asked, frames, shared)
        except FedcompError as error:
            log(WARNING, "fedcomp: this node cannot follow: %s", error)
            # Nothing that it says is remembered: a forged number would make all later ones old.
            lost = Frame(Kind.RESYNC, NO_BODY, 0, 0, 0, 0, 0, asked.number)
            return Message(RecordDict({key: records.pack(lost.to_bytes())}), reply_to=message)
        state.number = asked.number
        decode_seconds = time.perf_counter() - begin + (shared.saved_seconds if shared else 0.0)

        replica = _held(state)
        plain = message.content.copy()
        plain[key] = _model(state, replica, shared)
        message.content = plain
        reply = call_next(message, context)

        if reply.has_content():
            content = reply.content.copy()
            trained = _trained(message, content, key, replica)
            if trained is not None:
                frame = self._update(state, records.array_records(content)[trained], asked, decode_seconds, context)
                state.answer = {name: record for name, record in content.items() if name != trained}
                state.answer_key = trained
                content[trained] = records.pack(frame)
            else:
                held = Frame(Kind.ACK, NO_BODY, 0, *_here(replica), asked.number)
                content[records.KEY] = records.pack(held.to_bytes())
            reply.content = content
        home.save(state)
        return reply

    def _update(
        self, state: ClientState, trained: ArrayRecord, asked: ServerMessage, decode_seconds: float, context: Context
    ) -> bytes:
        """Return the update frame, and leave it pending in `state`."""
        begin = time.perf_counter()
        replica = _held(state)
        layout = replica.layout
        vector, exact = layout.flatten(records.to_arrays(trained))
        np.subtract(vector, replica.vector, out=vector)
        try:
            uplink, epoch = split_epoch(asked.uplink)
            compressor = parse(uplink)
        except ValueError as error:
            raise UnknownFormatError(f"the server asks for an uplink that is not known here: {error}") from error
        # The server may ask for another compressor; what another memory holds is left for when it is asked for again.
        memory = compressor.select(state.memory, layout.n)
        first = compressor.memory.incremental and cast(Incremental, compressor.memory).begins(memory, epoch)
        identity = int(context.node_config.get("partition-id", context.node_id))
        seed = int(np.random.SeedSequence([asked.seed, identity & (1 << 64) - 1]).generate_state(1, np.uint64)[0])
        try:
            body, memory = compressor.encode(
                vector,
                memory,
                seed,
                server_round=replica.version,
                shapes=layout.shapes,
                model=replica.vector,
                estimate_epoch=epoch,
            )
        except NonFiniteError as error:
            raise NonFiniteError(error.index, error.value, f" (in tensor {layout.name_at(error.index)!r})") from None
        state.memory |= memory
        flags = (0 if exact == replica.exact else FLAG_EXACT) | (FLAG_FIRST if first else 0)
        seconds = SECONDS.pack(time.perf_counter() - begin, decode_seconds)
        payload = b"".join((seconds, body, exact if flags & FLAG_EXACT else b""))
        codec = codec_id(compressor.entropy)
        frame = Frame(Kind.UPDATE, codec, flags, *_here(replica), asked.number, payload).to_bytes()
        state.pending, state.pending_number, state.uplink = frame, asked.number, uplink
        local = {tensor.name for tensor in layout.tensors if tensor.policy == "local"}
        state.local = {name: array for name, array in trained.items() if name in local}
        return frame


def _places(asked: ServerMessage, frames: tuple[Frame, ...]) -> set[tuple[int, int]]:
    """Return versions and fingerprints from which a node can follow."""
    ends = {place for frame in frames for place in ((frame.base_version, frame.before), (frame.version, frame.after))}
    return ends | {(asked.version, asked.fingerprint)}


def _held(state: ClientState) -> Replica:
    if state.replica is None:
        raise RuntimeError("no model is held")
    return state.replica


def _here(replica: Replica) -> tuple[int, int, int, int]:
    """Return base version, version, layout and fingerprint as a reply's head names them."""
    return replica.version, replica.version, replica.layout.digest, replica.fingerprint


def _model(state: ClientState, replica: Replica, shared: DecodeCache | None) -> ArrayRecord:
    """Return the model as the ClientApp expects it; local tensors as they were last trained here."""
    plain = shared.plain(replica) if shared else to_record(replica.arrays())
    if not state.local:
        return plain
    both = dict(plain) | state.local
    return record_of({item.name: both[item.name] for item in replica.layout.tensors if item.name in both})


def _trained(message: Message, content: RecordDict, key: str, replica: Replica) -> str | None:
    """Return the key of the trained model in a reply's content; None for a reply that is not to bring one.

    It is the record under the `key` that the model came in, or the only one with the model's tensors.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        return None
    names = {tensor.name for tensor in replica.layout.tensors}
    fitting = [name for name, record in records.array_records(content).items() if names & record.keys()]
    if key in fitting:
        return key
    if len(fitting) > 1:
        raise ValueError(
            f"the records {fitting} all hold tensors of the model; the trained one is expected under {key!r}"
        )
    return fitting[0] if fitting else None
