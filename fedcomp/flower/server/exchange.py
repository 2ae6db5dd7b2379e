"""The messages of a round: packed on the way out, validated on the way in, and counted in both directions."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from logging import WARNING

from flwr.app import Message
from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.flower.compat import log
from fedcomp.flower.records import Messages, array_records, dense_size, dense_sizes
from fedcomp.flower.server.async_mode import AsyncMode
from fedcomp.flower.server.dp_strategies import log_clipping_norm, sent_clipping_norm
from fedcomp.flower.server.further_records import DenseRecords, FurtherRecords
from fedcomp.flower.server.message_kind import MessageKind
from fedcomp.flower.server.model.published_model import PublishedModel
from fedcomp.flower.server.rounds.alike import are_alike
from fedcomp.flower.server.rounds.early_replies import EarlyReplies
from fedcomp.flower.server.rounds.missing_mod import check_mod
from fedcomp.flower.server.rounds.participation import Participation
from fedcomp.flower.server.rounds.replies import ReplyValidator
from fedcomp.flower.server.rounds.reply_needs import ReplyNeeds
from fedcomp.flower.server.rounds.traffic_log import log_totals
from fedcomp.flower.server.rounds.validated_reply import ReceivedReply, ValidatedReply
from fedcomp.sync import SERVER_NODE, Clipping, Ledger, Publisher


class Exchange:
    """Sends the published model to nodes, and takes their replies, for the strategy `inner`.

    Attributes:
        ledger: The traffic of the run.
        participation: Which nodes were asked, and which answered.
        dense_records: The records that travel as they are.
        further_records: The compressors of further records in training replies.
        asked: The number of nodes that were asked in the last round.
        round: The round in progress, in which queries count.
    """

    def __init__(
        self,
        inner: Strategy,
        records: Mapping[str, Compressor] | None,
        order: Callable[[int], int],
        clipping: Clipping,
        mode: AsyncMode | None = None,
    ) -> None:
        """Start with an empty ledger; `clipping` bounds updates, the other arguments are those of `CompressedStrategy`."""
        self.further_records = FurtherRecords(records)
        self._inner, self._order, self._clipping, self._mode = inner, order, clipping, mode
        self._early = EarlyReplies()
        self._max_norm: float | None = None  # of an update of this round
        self._types: dict[int, str] = {}  # node -> the type of its message of this step
        self._without_arrays = set[int]()  # nodes whose message holds no arrays, so that no frame answers it
        self._differ = self._same_records = False
        self.asked = self.round = 0
        self.restore(Ledger(), {})

    def restore(self, ledger: Ledger, heard: Mapping[int, int]) -> None:
        """Go on with the ledger of an earlier run, and the rounds in which its nodes were last heard."""
        self.ledger, self.participation, self.dense_records = ledger, Participation(heard), DenseRecords()

    def pack(
        self,
        kind: MessageKind,
        server_round: int,
        messages: Sequence[Message],
        model: PublishedModel,
        uplink: Compressor,
        seed: int,
        busy: Set[int],
    ) -> None:
        """Put the frames that their nodes need into `messages`; nodes answer with `uplink`, seeded by `seed`.

        Messages without arrays stay as they are.  Replies of `busy` nodes to earlier messages are expected too.

        Raises `ValueError` for a message with arrays, but without the published model.
        """
        nodes = [message.metadata.dst_node_id for message in messages]
        self._types = {message.metadata.dst_node_id: message.metadata.message_type for message in messages}
        self.participation.ask(nodes, busy)
        with_arrays = [message for message in messages if array_records(message.content)]
        nodes = [message.metadata.dst_node_id for message in with_arrays]
        self._without_arrays = (self._without_arrays & busy) | (self._types.keys() - set(nodes))
        start_s = time.thread_time()
        if model.publisher.make_jumps(nodes):
            self.ledger.add(server_round, SERVER_NODE, encode_seconds=time.thread_time() - start_s)
        for message in with_arrays:
            amounts = model.pack(message, str(uplink), seed, type(self._inner).__name__)
            if kind is MessageKind.TRAIN_MESSAGE:
                amounts["downlink_bytes"] += self.further_records.ask(message)
            self.ledger.add(server_round, message.metadata.dst_node_id, **amounts)
            self.dense_records.add(kind, dense_sizes(message.content))
        if kind is MessageKind.TRAIN_MESSAGE:
            known, self._max_norm = self._max_norm, sent_clipping_norm(messages)
            if self._max_norm is not None and known is None:
                log_clipping_norm(self._inner, self._max_norm)

    def arrive(self, replies: Sequence[Message], publisher: Publisher) -> None:
        """Parse replies that have arrived while others are awaited; they count when they are validated."""
        self._early.add(replies, publisher)

    def validate(
        self, server_round: int, replies: Messages, model: PublishedModel, busy: Set[int], *, train: bool
    ) -> tuple[list[ValidatedReply], list[Message]]:
        """Return the valid replies in the order of their nodes, and the failures; those of `busy` nodes come later.

        Raises `ValueError` for apps without the mod or without what the strategy needs, as `check_mod` and `ReplyValidator` do.
        """
        replies = list(replies)
        asked = self.asked = self.participation.take(server_round, replies, self.ledger, busy)
        received = [ReceivedReply.of(reply) for reply in replies]
        framed = [each for each in received if each.message.metadata.src_node_id not in self._without_arrays]
        check_mod(server_round, framed, asked, any_frame=bool(self.ledger.uplink_bytes), train=train)
        validator = ReplyValidator(
            model.publisher,
            self.ledger,
            server_round,
            dense_size(model.inner),
            ReplyNeeds.of(self._inner, train=train),
            self._order,
            self.dense_records,
            self.further_records,
            self._clipping,
            self._max_norm,
            self._mode,
            asked if train and not model.publisher.replica.version else 0,
            self._same_records,
            self._early,
            self._types,
            self._without_arrays,
        )
        valid, failed = validator.validate(received, train=train)
        self._early.clear()
        if train and any(reply.update is not None for reply in valid):
            self.further_records.check_keys(server_round, [each.contents for each in received])
        self._differ = not are_alike(valid)
        return valid, failed

    def count_dense(self, kind: MessageKind, message: Message) -> None:
        """Count the array records of a message, which travel as they are, in the round in progress."""
        if not message.has_content() or not (sizes := dense_sizes(message.content)):
            return
        node = message.metadata.src_node_id if kind.is_uplink else message.metadata.dst_node_id
        size, direction = sum(sizes.values()), "uplink" if kind.is_uplink else "downlink"
        self.ledger.add(self.round, node, **{f"{direction}_bytes": size, f"dense_{direction}_bytes": size})
        self.dense_records.add(kind, sizes)

    def fail(self) -> None:
        """Note that the strategy failed on the replies of the last `validate`: it may need the same records of all nodes."""
        if self._differ and not self._same_records:
            self._same_records = True
            text = "fedcomp: replies with different records; from now on, those count that have what most of them have"
            log(WARNING, text)

    def log_dense_records(self, server_round: int) -> None:
        """Log the records that have travelled as they are for the first time."""
        self.dense_records.log(self.ledger.of_round(server_round), server_round)

    def log_totals(self) -> None:
        """Log the traffic of the whole run."""
        log_totals(self.ledger, self.dense_records.total_bytes)
