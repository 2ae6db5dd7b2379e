"""Replies that are parsed while the server waits for those of other nodes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fedcomp.errors import FedcompError
from fedcomp.flower.compat import GridWrapper
from fedcomp.flower.records import packed
from fedcomp.sync import Publisher, Reply

MAX_DECODED_BYTES = 512 * 2**20
"""The memory for decoded updates of a round; those beyond it are decoded a second time, when they are used."""


@dataclass(frozen=True, slots=True)
class EarlyReply:
    """What the frame `data` of `message` holds, parsed in `seconds` of CPU time while version `version` was published."""

    message: Message
    data: bytes
    reply: Reply
    version: int
    seconds: float


@dataclass(slots=True)
class EarlyReplies:
    """The replies of a round that were parsed as they arrived, by the identity of their messages.

    None of them counts before it is taken.  A reply that could not be parsed is parsed again then, and is refused.
    """

    _parsed: dict[int, EarlyReply] = field(default_factory=dict[int, EarlyReply])
    _decoded_bytes: int = 0

    def add(self, messages: Sequence[Message], publisher: Publisher) -> None:
        """Parse the replies `messages`, until the decoded updates of the round take `MAX_DECODED_BYTES`."""
        for message in messages:
            if not message.has_content() or self._decoded_bytes >= MAX_DECODED_BYTES:
                continue
            start_s = time.thread_time()
            try:
                _, data = packed(message.content) or ("", b"")
                reply = publisher.parse_reply(message.metadata.src_node_id, data)
            except FedcompError:
                continue
            self._decoded_bytes += reply.update.decoded_bytes if reply.update else 0
            seconds = time.thread_time() - start_s
            self._parsed[id(message)] = EarlyReply(message, data, reply, publisher.replica.version, seconds)

    def take(self, message: Message, data: bytes, publisher: Publisher) -> tuple[Reply, float]:
        """Return what the frame `data` of `message` holds, and the CPU seconds that parsing took.

        Raises `FedcompError` as `Publisher.parse_reply` does.
        """
        start_s, node = time.thread_time(), message.metadata.src_node_id
        early = self._parsed.pop(id(message), None)
        if early is None or early.data is not data or early.version != publisher.replica.version:
            reply = publisher.parse_reply(node, data)
            return reply, time.thread_time() - start_s
        publisher.check_reply(node, early.reply.frame)  # another reply may have answered the same message meanwhile
        return early.reply, early.seconds

    def clear(self) -> None:
        """Forget the replies of the round."""
        self._parsed.clear()
        self._decoded_bytes = 0


class ParsingGrid(GridWrapper):
    """Hands replies to `parse` while others are awaited."""

    def __init__(self, grid: Grid, parse: Callable[[Sequence[Message]], None]) -> None:
        super().__init__(grid)
        self._parse = parse

    def arrive(self, replies: Sequence[Message]) -> None:
        """Parse replies."""
        super().arrive(replies)
        self._parse(replies)
