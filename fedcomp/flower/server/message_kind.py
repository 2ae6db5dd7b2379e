"""The kinds of messages of a round."""

from enum import Enum


class MessageKind(Enum):
    """A kind of message; its value names it in log lines."""

    TRAIN_MESSAGE = "train messages"
    TRAIN_REPLY = "train replies"
    EVALUATE_MESSAGE = "evaluate messages"
    EVALUATE_REPLY = "evaluate replies"
    QUERY_MESSAGE = "query messages"
    QUERY_REPLY = "query replies"

    @property
    def is_uplink(self) -> bool:
        """Whether nodes send these messages."""
        return self in (MessageKind.TRAIN_REPLY, MessageKind.EVALUATE_REPLY, MessageKind.QUERY_REPLY)
