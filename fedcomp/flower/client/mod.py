"""The node's side in Flower: a mod that turns frames into the arrays that a ClientApp expects, and its reply into a frame."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from logging import WARNING
from typing import Any, cast

from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from numpy.typing import NDArray

from fedcomp.errors import DivergedError, FedcompError
from fedcomp.flower import records
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.further import with_packed_records
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState
from fedcomp.flower.client.kept_state import kept_state
from fedcomp.flower.client.store import StateStore, open_store, recall
from fedcomp.flower.client.trained import Asked, identity_of, returned_model, trained_model
from fedcomp.flower.compat import ClientAppCallable, is_about_bfloat16, log, record_of, view_record
from fedcomp.flower.records import Contents
from fedcomp.sync import Learned, MakeStart, Subscriber, resync
from fedcomp.wire import Frame, ServerMessage, parse_server_message


class CompressionMod:
    """The mod of a compressed ClientApp: ``ClientApp(mods=[CompressionMod()])``.

    Each message says how to answer, so the mod needs no settings for that; a message from a server without `CompressedStrategy`
    passes unchanged, and so does one for a `SplitClient`.  The mod itself has no state: a node's state is in
    ``Context.state``, or, with ``state-dir`` in the node's config, in the files of that folder, where it outlives a restart.

    Where the message's config holds Flower's ``clipping_norm``, as under `DifferentialPrivacyClientSideFixedClipping`, the
    decoded update that is sent has at most that norm; error feedback keeps the rest.  Put Flower's mods after this one.

    Args:
        start: A function of the Context that returns the model with which training starts, as named numpy arrays or an
            ArrayRecord: from a seed, or from a file of pretrained weights.  Under ``CompressedStrategy(shared_start=True)``
            that model is not sent.  It must be the same on server and nodes in every bit; a node whose model differs gets
            the server's.  It is called when the node holds no model.

    Examples:
        >>> import numpy as np
        >>> mod = CompressionMod(start=lambda context: {"weight": np.zeros((10, 4), np.float32)})
    """

    def __init__(self, start: Callable[[Context], Mapping[str, NDArray[Any]] | ArrayRecord] | None = None) -> None:
        self._start = start
        self._logged: set[str] = set()  # what one line in the log is enough for

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Return the ClientApp's reply to `message`, compressed.

        Raises `FedcompError` for a damaged or outdated message, and `ValueError` for a trained model that cannot be sent.
        """
        packed = records.packed(message.content) if message.has_content() else None
        answers_split = packed is not None and message.metadata.message_type.split(".")[0] == MessageType.QUERY
        if packed is None or answers_split:
            recall(context)
            with kept_state(context, answers_split=answers_split):
                return call_next(message, context)
        del packed  # a first model is as large as all that follows
        with open_store(context) as store:
            return self._answer(message, context, call_next, store)

    def _answer(self, message: Message, context: Context, call_next: ClientAppCallable, store: StateStore) -> Message:
        """Return the reply to a `message` with frames: follow them, run the app, pack its update."""
        cache = context.state.cache if isinstance(context.state, InMemoryState) else None
        followed = self._followed(message, context, cache, store)
        if isinstance(followed, Message):
            return followed
        state, asked = followed
        message.content = _with_record(message.content, asked.key, _model(state, cache))
        if asked.uplinks:
            del message.content[records.RECORD_UPLINKS]
        with kept_state(context), _explained():
            reply = call_next(message, context)
        if reply.has_content():
            with _named_errors():
                if (learned := self._taken(reply, message, state, asked)) is not None:
                    reply.content = _packed_update(state, reply.content, *learned, asked)
                else:
                    reply.content = _confirmed(state.subscriber, reply.content, message, asked)
            del learned
        store.save(state)
        return reply

    def _followed(
        self, message: Message, context: Context, cache: DecodeCache | None, store: StateStore
    ) -> tuple[ClientState, Asked] | Message:
        """Return the state after the frames of `message`, and what it asks; the reply itself if the app need not run.

        The frames are dropped here: a first model must not lie in memory twice while the app trains.
        """
        contents = Contents.of(message.content)
        key, data = cast(tuple[str, bytes], contents.frame)
        request, frames = parse_server_message(data)
        request = replace(request, frames=())
        starts = {(frame.base_version, frame.before) for frame in frames}
        places = starts | {(frame.version, frame.after) for frame in frames} | {(request.version, request.fingerprint)}
        state = store.load(request.training_id, places)  # one from which the node can follow
        if state.subscriber.is_repeated(request):
            content = RecordDict(dict(state.answer.items()))
            for name, sender in state.senders.items():
                if sender.pending_number == request.number:
                    content[name] = records.pack(sender.pending, stype=records.RECORD_STYPE)
            update = records.pack(state.subscriber.pending)
            return Message(_with_record(content, state.answer_key, update), reply_to=message)
        start_s = time.thread_time()
        if not _follow(state, request, frames, context.node_id, cache, self._make_start(context)):
            # Store nothing from this message: accepting a forged number would make every genuine one look stale.
            return Message(RecordDict({key: records.pack(resync(request.number))}), reply_to=message)
        decode_seconds = time.thread_time() - start_s + (cache.saved_seconds if cache else 0.0)
        further, identity = frozenset(contents.dense), identity_of(context)
        asked = Asked(request, key, further, contents.record_uplinks, contents.clipping_norm, identity, decode_seconds)
        return state, asked

    def _taken(
        self, reply: Message, message: Message, state: ClientState, asked: Asked
    ) -> tuple[str, Learned, dict[str, Array]] | None:
        """Return the key of the trained model in `reply`, what it learned, and its local tensors; None if there is no model.

        Further records are compressed.  The model leaves the reply, so that its memory is free before more is needed.
        """
        layout, arrays = state.subscriber.held.layout, records.array_records(reply.content)
        if (trained := trained_model(message, arrays, asked, layout, self._logged)) is None:
            return None
        key, record = trained
        content = with_packed_records(state, reply.content, key, asked, self._logged)
        learned = state.subscriber.learned(records.held_values(record))
        for remark in learned.remarks:
            log(WARNING, "fedcomp: node %s: %s", message.metadata.dst_node_id, remark)
        names = {tensor.name for tensor in layout.tensors if tensor.policy == "local"}
        reply.content = _with_record(content, key, ArrayRecord())
        return key, learned, {name: array for name, array in record.items() if name in names}

    def _make_start(self, context: Context) -> MakeStart | None:
        if (start := self._start) is None:
            return None

        def make() -> Mapping[str, NDArray[Any]]:
            with kept_state(context):
                made = start(context)
            return records.to_arrays(made) if isinstance(made, ArrayRecord) else made

        return make


@contextmanager
def _explained() -> Generator[None]:
    """Say what to write in place of Flower's ``ArrayRecord(...)`` where that fails because of bfloat16."""
    try:
        yield
    except TypeError as error:
        if not is_about_bfloat16(error):
            raise
        raise TypeError(f"{error}; fedcomp.flower.to_record(model.state_dict()) takes tensors of bfloat16") from error


@contextmanager
def _named_errors() -> Generator[None]:
    """Say in the text of an error that it is about the reply, and not from the app."""
    try:
        yield
    except DivergedError as error:
        raise DivergedError(f"{records.BY_MOD}{error}") from error
    except ValueError as error:
        raise ValueError(f"{records.BY_MOD}{error}") from error


def _follow(
    state: ClientState,
    request: ServerMessage,
    frames: tuple[Frame, ...],
    node: int,
    cache: DecodeCache | None,
    make_start: MakeStart | None,
) -> bool:
    """Settle the pending update and follow the frames; return False, and log why, if they do not lead to the version."""
    subscriber = state.subscriber
    if subscriber.node not in (0, node):
        text = "fedcomp: the state here is that of node %d, and this is node %d: it has a new key, or they share a state-dir"
        log(WARNING, text, subscriber.node, node)
    state.settle(request.acked, node, request.returned)
    try:
        state.follow(request, frames, cache, make_start)
    except FedcompError as error:
        log(WARNING, "fedcomp: this node cannot follow: %s", error)
        return False
    return True


def _model(state: ClientState, cache: DecodeCache | None) -> ArrayRecord:
    """Return the model as the ClientApp expects it, with local tensors as they were last trained here.

    It is in the memory of the replica, which an app that reads it copies.
    """
    replica = state.subscriber.held
    plain = cache.plain(replica) if cache else view_record(replica.arrays(copy=False))
    if not state.local:
        return plain
    arrays = dict(plain) | state.local
    return record_of({tensor.name: arrays[tensor.name] for tensor in replica.layout.tensors if tensor.name in arrays})


def _packed_update(
    state: ClientState, content: RecordDict, key: str, learned: Learned, local: dict[str, Array], asked: Asked
) -> RecordDict:
    """Return `content` with an update frame of what was `learned` under `key`; keep it all in case it must repeat."""
    frame = state.subscriber.update(learned, asked.request, asked.identity, asked.decode_seconds, asked.max_norm)
    state.local = local
    pending = {name for name, sender in state.senders.items() if sender.pending}
    state.answer = {name: record for name, record in content.items() if name != key and name not in pending}
    state.answer_key = key
    return _with_record(content, key, records.pack(frame))


def _confirmed(subscriber: Subscriber, content: RecordDict, message: Message, asked: Asked) -> RecordDict:
    """Return `content` with a frame that confirms the version, and holds the model that an evaluation returns, if it does.

    A model that cannot be encoded, such as one with NaN, travels as it is.
    """
    returned = returned_model(message, records.array_records(content), asked.key, subscriber.held.layout)
    if returned is not None:
        key, arrays = returned
        with suppress(ValueError):
            values = records.to_arrays(arrays)
            frame = subscriber.returned_model(values, asked.request, asked.identity, asked.decode_seconds)
            if frame is not None:
                return _with_record(content, key, records.pack(frame))
    return _with_record(content, records.KEY, records.pack(subscriber.ack(asked.request.number)))


def _with_record(content: RecordDict, key: str, record: ArrayRecord) -> RecordDict:
    """Return `content` with `record` as `key`, in the place of the one that was there."""
    # Set in an existing RecordDict, a record of another class would bring a warning of Flower's.
    return RecordDict({**content, key: record})
