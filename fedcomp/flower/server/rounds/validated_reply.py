"""A reply that was validated: its message, and what its frame holds."""

from dataclasses import dataclass

from flwr.app import Message

from fedcomp.sync import Reply, Update


@dataclass(frozen=True, slots=True, eq=False)
class ValidatedReply:
    """A reply: `message` without its frame, the `key` of the frame's record, and the parsed frame."""

    message: Message
    key: str
    reply: Reply

    @property
    def node(self) -> int:
        """The id of the node that answered."""
        return self.message.metadata.src_node_id

    @property
    def update(self) -> Update | None:
        """What the node learned; None if it did not train."""
        return self.reply.update
