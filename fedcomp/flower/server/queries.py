"""Queries of a strategy, such as one for the loss of each node: the records in them travel as they are, and count."""

from collections.abc import Callable, Iterable

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedcomp.flower.compat import GridWrapper
from fedcomp.flower.server.message_kind import MessageKind


class QueryGrid(GridWrapper):
    """Hands queries and the replies to them to `count`."""

    def __init__(self, grid: Grid, count: Callable[[MessageKind, Message], None]) -> None:
        super().__init__(grid)
        self._count = count

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids."""
        return super().push_messages(self._counted(messages, MessageKind.QUERY_MESSAGE))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return self._counted(super().pull_messages(message_ids), MessageKind.QUERY_REPLY)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages; return the replies that arrive within `timeout` seconds."""
        messages = self._counted(messages, MessageKind.QUERY_MESSAGE)
        return self._counted(super().send_and_receive(messages, timeout=timeout), MessageKind.QUERY_REPLY)

    def _counted(self, messages: Iterable[Message], kind: MessageKind) -> list[Message]:
        messages = list(messages)
        for message in messages:
            if message.metadata.message_type.split(".")[0] == MessageType.QUERY:
                self._count(kind, message)
        return messages
