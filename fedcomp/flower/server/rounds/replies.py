"""The way in: each reply is validated completely, by itself and against the others, before any of it counts."""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING

from flwr.app import Error, Message, MessageType

from fedcomp.errors import CorruptError, FedcompError, StaleError
from fedcomp.flower import records
from fedcomp.flower.compat import ErrorCode, log, make_message
from fedcomp.flower.server.async_mode import AsyncMode
from fedcomp.flower.server.further_records import DenseRecords, FurtherRecords
from fedcomp.flower.server.message_kind import MessageKind
from fedcomp.flower.server.rounds.alike import with_common_metrics, with_common_records, with_one_key
from fedcomp.flower.server.rounds.early_replies import MAX_DECODED_BYTES, EarlyReplies
from fedcomp.flower.server.rounds.reply_needs import MissingRecordError, ReplyNeeds
from fedcomp.flower.server.rounds.validated_reply import ReceivedReply, ValidatedReply
from fedcomp.sync import Clipping, Ledger, Publisher, check_norm, dense_change, scaled


@dataclass(frozen=True, slots=True)
class ReplyValidator:
    """Validates the replies of one round, and adds their sizes to the ledger.

    Attributes:
        publisher: What is published, and what is known of the nodes.
        ledger: The traffic of the run.
        server_round: The number of the round.
        dense_size: The size of a plain model in bytes.
        needs: What the strategy needs of a reply.
        order: Gives the rank of a node id.
        dense_records: Counts the arrays that no frame holds.
        further_records: Decodes the records that have a compressor.
        clipping: Scales long updates down.
        max_norm: The norm above which an update is refused; None for no bound.
        mode: Scales updates down that start from older versions, and bounds their age; None takes no older version.
        asked: How many nodes must all fail before the run ends; 0 once any version has been published.
        same_records: Whether a reply must have the records that most replies have.
        early: The replies that were parsed as they arrived.
        types: Node -> the type of its message of this step; a strategy may train some nodes while others evaluate.
        without_arrays: The nodes whose message holds no arrays, and whose reply has no frame therefore.
    """

    publisher: Publisher
    ledger: Ledger
    server_round: int
    dense_size: int
    needs: ReplyNeeds
    order: Callable[[int], int]
    dense_records: DenseRecords
    further_records: FurtherRecords
    clipping: Clipping
    max_norm: float | None = None
    mode: AsyncMode | None = None
    asked: int = 0
    same_records: bool = False
    early: EarlyReplies = field(default_factory=EarlyReplies)
    types: Mapping[int, str] = field(default_factory=dict[int, str])
    without_arrays: Set[int] = frozenset()

    def validate(self, received: Iterable[ReceivedReply], *, train: bool) -> tuple[list[ValidatedReply], list[Message]]:
        """Return the valid replies in the order of their nodes, and the failures, which include the refused replies.

        No update is acknowledged yet: that is for when it has gone into the model.

        Raises `ValueError` if all of several nodes were `asked` for their first update, and each reply lacks a record: their
        app does not fit the strategy.  A single node cannot end a run.
        """
        replies: list[ValidatedReply] = []
        decoded_bytes = 0
        misfits: set[int] = set()
        failed: list[Message] = []
        for each in received:
            message = each.message
            if message.has_error():
                failed.append(message)
                continue
            try:
                reply = self._validate(each, train)
            except FedcompError as error:
                failed.append(self._refuse(message, error))
                if isinstance(error, MissingRecordError):
                    misfits.add(message.metadata.src_node_id)
                if len(misfits) == self.asked > 1:
                    raise ValueError(
                        f"the replies of all {self.asked} nodes are dropped; of the last one, {error}"
                    ) from None
                continue
            size = reply.update.decoded_bytes if reply.update else 0
            if reply.reply is not None and decoded_bytes + size > MAX_DECODED_BYTES:
                reply = replace(reply, reply=reply.reply.undecoded(self.publisher.replica))
            else:
                decoded_bytes += size
            replies.append(reply)
        replies.sort(key=lambda reply: (self.order(reply.node), reply.node))
        alike = self._alike(replies)
        used = {id(reply.message) for reply in alike}
        others = CorruptError("its records are not those of the other replies")
        failed += [self._refuse(reply.message, others) for reply in replies if id(reply.message) not in used]
        if alike and not any(self.needs.weight(reply.metrics) for reply in alike):
            none = CorruptError("its weight is 0, and so are all others")
            return [], [*failed, *(self._refuse(reply.message, none) for reply in alike)]
        clipped = self._clipped(alike) if train and self.clipping else alike
        return [self._weighted(reply) for reply in clipped], failed

    def _alike(self, replies: list[ValidatedReply]) -> list[ValidatedReply]:
        """Return the replies that the strategy can aggregate together, in one form: those that trained, if any did.

        A strategy that is not derived from FedAvg may read those of nodes that did not train, too.
        """
        if trained := [reply for reply in replies if reply.update is not None]:
            named = iter(with_one_key(trained))
            used = trained if self.needs.averages or self.same_records else replies
            replies = [next(named) if reply.update is not None else reply for reply in used]
        if self.needs.averages:
            replies = with_common_metrics(replies, self.needs.weight_key)
        return with_common_records(replies) if self.same_records else replies

    def _weighted(self, reply: ValidatedReply) -> ValidatedReply:
        """Return the reply, whose update counts less if it starts from an older version."""
        update, mode = reply.update, self.mode
        if update is None or reply.reply is None or mode is None or (weight := mode.weight(reply.reply.staleness)) == 1:
            return reply
        return reply.with_update(scaled(update, weight, self.publisher.replica))

    def _clipped(self, replies: list[ValidatedReply]) -> list[ValidatedReply]:
        """Return the replies with their updates within the bound; log which were longer."""
        updates, published = [reply.update for reply in replies if reply.update is not None], self.publisher.replica
        factors = iter(self.clipping.scales(updates, published) if updates else [])
        clipped: list[ValidatedReply] = []
        for reply in replies:
            if (update := reply.update) is not None and (factor := next(factors)) < 1:
                log(INFO, "fedcomp: the update of node %d is clipped to %.3g times its norm", reply.node, factor)
                reply = reply.with_update(scaled(update, factor, published))
            clipped.append(reply)
        return clipped

    def _validate(self, received: ReceivedReply, train: bool) -> ValidatedReply:
        message, contents = received.message, received.contents
        kind = MessageKind.TRAIN_REPLY if train else MessageKind.EVALUATE_REPLY
        node = message.metadata.src_node_id
        sizes = {key: records.dense_size(record) for key, record in contents.dense.items()}
        others_size = sum(sizes.values())
        packed_size = sum(len(array.data) for array in (*contents.frames.values(), *contents.compressed.values()))
        self.ledger.add(self.server_round, node, uplink_bytes=packed_size + others_size)  # also of a reply of no use
        packed = contents.frame
        if packed is None and (node not in self.without_arrays or contents.compressed):
            raise CorruptError("the reply holds no frame; is CompressionMod in the ClientApp's mods?")
        answered, other = message.metadata.message_type, MessageType.EVALUATE if train else MessageType.TRAIN
        if answered.split(".")[0] == other and self.types.get(node) != answered:
            raise StaleError(f"it answers a message of type {answered!r}, which is over")
        if packed is None:
            self.needs.check(contents, None)
            self.ledger.add(self.server_round, node, dense_uplink_bytes=others_size)
            self.dense_records.add(kind, sizes)
            return ValidatedReply(message, records.KEY, None, contents.dense, contents.metrics, contents.configs)
        key, data = packed
        reply, decode_seconds = self.early.take(message, data, self.publisher)
        start_s = time.thread_time()
        if reply.update is not None and train and self.max_norm is not None:
            check_norm(reply.update, self.publisher.replica, self.max_norm)
        published = self.publisher.replica
        further, further_size = self.further_records.decode(contents.compressed, reply.frame.after, published.layout)
        decode_seconds += time.thread_time() - start_s
        self.publisher.confirm(node, reply)  # the node holds the version, even if its reply is of no use
        most = self.mode.staleness if self.mode is not None else 0
        if reply.staleness > most:
            raise StaleError(
                f"it starts from version {reply.frame.version}, {reply.staleness} before the published one; at most {most} "
                "are possible"
            )
        self.needs.check(contents, reply.update)
        self.ledger.add(self.server_round, node, dense_uplink_bytes=others_size + further_size)
        self.dense_records.add(kind, sizes)
        if (update := reply.update) is not None:
            seconds = {
                "encode_seconds": update.encode_seconds,
                "decode_seconds": update.decode_seconds + decode_seconds,
            }
            self.ledger.add(self.server_round, node, dense_uplink_bytes=self.dense_size, **seconds)
        others, model_key = contents.dense | further, key
        if update is not None and not train:
            # The model that an evaluation returned is one more record of the reply: nothing that is published depends on it.
            change, _ = dense_change(update, published.layout)
            arrays = published.layout.unflatten(published.vector + change, update.exact)
            others[key] = records.model_record(arrays)
            model_key, reply = records.KEY, replace(reply, update=None)
        return ValidatedReply(message, model_key, reply, others, contents.metrics, contents.configs)

    def _refuse(self, message: Message, error: FedcompError) -> Message:
        node = message.metadata.src_node_id
        log(WARNING, "fedcomp: the reply of node %d is dropped: %s", node, error)
        self.ledger.add(self.server_round, node, refused=1)
        reason = f"{type(error).__name__}: {error}"
        return make_message(message.metadata, error=Error(ErrorCode.MOD_FAILED_PRECONDITION, reason))
