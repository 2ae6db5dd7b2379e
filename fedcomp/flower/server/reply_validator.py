"""Replies on their way in: each is judged whole, and beside the others, before anything of it counts."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from logging import WARNING

from flwr.app import Error, Message, RecordDict

from fedcomp.errors import CorruptError, FedcompError, StaleError
from fedcomp.flower import records
from fedcomp.flower._compat import ErrorCode, log, make_message
from fedcomp.sync import UNKNOWN_VERSION, Ledger, NodeRegistry, Replica, Update, check_reply, decode_update
from fedcomp.wire import Ack, Frame, Kind, ack_of, parse_single_frame

MAX_EXAMPLE_WEIGHT = float(1 << 53)


@dataclass(frozen=True, slots=True)
class ValidatedReply:
    """A reply without its frame, the key that held the frame, and what the node learned, if it trained."""

    message: Message
    key: str
    update: Update | None
    ack: Ack

    @property
    def node(self) -> int:
        """The node that answers."""
        return self.message.metadata.src_node_id


@dataclass(frozen=True, slots=True)
class ReplyValidator:
    """What the replies of one round are judged by, and billed to.

    `dense_size` are the bytes of a plain model; `weight_key` names the metric that weighs an update, if one does; `order`
    gives the place of a node among the others.
    """

    published: Replica
    registry: NodeRegistry
    ledger: Ledger
    server_round: int
    dense_size: int
    weight_key: str | None
    order: Callable[[int], int]

    def open(self, replies: Iterable[Message], *, train: bool) -> tuple[list[ValidatedReply], list[Message]]:
        """Return the answers in the order of their nodes, and the failures; what is refused becomes a failure.

        No uplink is taken yet: that is for when it has gone into the model.
        """
        answers: list[ValidatedReply] = []
        failed: list[Message] = []
        for message in replies:
            if message.has_error():
                failed.append(message)
                continue
            try:
                answers.append(self._answer(message, train))
            except FedcompError as error:
                failed.append(self._refused(message, error))
        fitting = self._fitting(answers)
        failed += [
            self._refused(answer.message, CorruptError("its records are not those of the other replies"))
            for answer in answers
            if answer not in fitting
        ]
        return sorted(fitting, key=lambda answer: (self.order(answer.node), answer.node)), failed

    def _answer(self, message: Message, train: bool) -> ValidatedReply:
        node = message.metadata.src_node_id
        found = records.packed(message.content)
        if found is None:
            raise CorruptError("the reply holds no frame; is CompressionMod in the ClientApp's mods?")
        key, data = found
        others = records.size_beside(message.content, key)
        self.ledger.add(self.server_round, node, uplink_bytes=len(data) + others)
        begin = time.perf_counter()
        frame = parse_single_frame(data)
        standing = self.registry[node]
        check_reply(frame, standing, self.published)
        if frame.kind is Kind.RESYNC:
            standing.version = UNKNOWN_VERSION
            raise CorruptError("the node cannot follow; it gets a key frame next")
        if standing.answered == frame.after:
            raise StaleError(f"instruction {frame.after} was answered before")
        update = self._update(frame, message.content, train)
        standing.answered = frame.after
        standing.version, standing.fingerprint = frame.version, frame.before
        self.ledger.add(self.server_round, node, dense_uplink_bytes=others)
        if update is not None:
            self.ledger.add(
                self.server_round,
                node,
                dense_uplink_bytes=self.dense_size,
                encode_seconds=update.encode_seconds,
                decode_seconds=update.decode_seconds + time.perf_counter() - begin,
            )
        message.content = message.content.copy()
        del message.content[key]
        return ValidatedReply(message, key, update, ack_of(frame.after, data))

    def _update(self, frame: Frame, content: RecordDict, train: bool) -> Update | None:
        if frame.kind is not Kind.UPDATE:
            return None
        if not train:
            raise CorruptError("an update in answer to a message that asked for none")
        for record in records.metric_records(content).values():
            weight = record.get(self.weight_key, 1) if self.weight_key else 1
            if not isinstance(weight, int | float) or not 0 <= weight <= MAX_EXAMPLE_WEIGHT:
                raise CorruptError(f"its weight {self.weight_key!r} is {weight}; a number from 0 to 2^53 is needed")
        return decode_update(frame, self.published)

    def _fitting(self, answers: list[ValidatedReply]) -> list[ValidatedReply]:
        """Return the answers that can be aggregated together: those that trained, of the records that most have."""
        if any(answer.update is not None for answer in answers):
            answers = [answer for answer in answers if answer.update is not None]
        shapes = [_shape(answer) for answer in answers]
        common = Counter(shapes).most_common(1)
        return [answer for answer, shape in zip(answers, shapes, strict=True) if shape == common[0][0]]

    def _refused(self, message: Message, error: FedcompError) -> Message:
        node = message.metadata.src_node_id
        log(WARNING, "fedcomp: the reply of node %d is dropped: %s", node, error)
        self.ledger.add(self.server_round, node, refused=1)
        return make_message(
            message.metadata, error=Error(ErrorCode.MOD_FAILED_PRECONDITION, f"{type(error).__name__}: {error}")
        )


def _shape(answer: ValidatedReply) -> Hashable:
    """Return what must be alike in replies that Flower aggregates: the names of records and metrics, and their lengths."""
    content = answer.message.content
    metrics = records.metric_records(content)
    entries = {
        (key, name, len(value) if isinstance(value, list) else None)
        for key, record in metrics.items()
        for name, value in record.items()
    }
    return answer.key, frozenset(records.array_records(content)), frozenset(metrics), frozenset(entries)
