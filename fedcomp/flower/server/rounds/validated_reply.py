"""A reply as it came, and as it is once it was validated."""

from dataclasses import dataclass, field, replace

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedcomp.flower.records import Contents
from fedcomp.sync import Publisher, Reply, Update

Record = ArrayRecord | MetricRecord | ConfigRecord


@dataclass(frozen=True, slots=True)
class ReceivedReply:
    """A reply as it came: its `message`, and the records in it, which are none if it is an error."""

    message: Message
    contents: Contents

    @classmethod
    def of(cls, message: Message) -> "ReceivedReply":
        """Return `message` with its records."""
        return cls(message, Contents.of(message.content) if message.has_content() else Contents())


@dataclass(frozen=True, slots=True, eq=False)
class ValidatedReply:
    """A reply that was validated.

    Attributes:
        message: The message as it came.
        key: The key of the model.
        reply: What its frame holds; None for the reply to a message without arrays, which has no frame.
        arrays: The other array records, decoded, by key.
        metrics: Its metric records.
        configs: Its config records.
    """

    message: Message
    key: str
    reply: Reply | None
    arrays: dict[str, ArrayRecord] = field(default_factory=dict[str, ArrayRecord])
    metrics: dict[str, MetricRecord] = field(default_factory=dict[str, MetricRecord])
    configs: dict[str, ConfigRecord] = field(default_factory=dict[str, ConfigRecord])

    @property
    def node(self) -> int:
        """The id of the node that answered."""
        return self.message.metadata.src_node_id

    @property
    def update(self) -> Update | None:
        """What the node learned; None if it did not train."""
        return None if self.reply is None else self.reply.update

    def with_update(self, update: Update | None) -> "ValidatedReply":
        """Return this reply with another update, if it has a frame."""
        return self if self.reply is None else replace(self, reply=replace(self.reply, update=update))

    def lost_its_estimate(self, publisher: Publisher) -> bool:
        """Return whether its node starts an estimate from zero although the sum holds increments from it."""
        return self.reply is not None and publisher.lost_its_estimate(self.node, self.reply)

    def has(self, key: str) -> bool:
        """Return whether a record other than the model has `key`."""
        return key in self.arrays or key in self.metrics or key in self.configs

    def content(self, model: ArrayRecord | None = None) -> RecordDict:
        """Return its records in the order of the message, the frame replaced by `model` under `key`, if there is one."""
        found: dict[str, Record] = {**self.configs, **self.metrics, **self.arrays}
        if model is not None:
            found[self.key] = model
        order: list[str] = []
        for key, record in self.message.content.items():
            if key in found:
                order.append(key)
            elif isinstance(record, ArrayRecord):  # the frame
                order.append(self.key)
            else:  # a MetricRecord, which has the key of the others' by now, or is dropped
                order += self.metrics
        return RecordDict({key: found[key] for key in dict.fromkeys([*order, *found]) if key in found})

    def to_message(self, model: ArrayRecord | None = None) -> Message:
        """Return the message, as a strategy expects it: with `content(model)`."""
        self.message.content = self.content(model)
        return self.message
