"""A grid that returns from a round of training when some updates have come in, for the mode `async`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedcomp.flower.compat import GridWrapper, clock_of
from fedcomp.flower.server.async_mode import AsyncMode

FOREVER_S = 1e12


@dataclass(frozen=True, slots=True)
class Training:
    """A training message without a reply so far: its node, the round in which it left, and when it is given up."""

    node: int
    round: int
    deadline_s: float


class BufferedGrid(GridWrapper):
    """Returns from a round of training as soon as a buffer of updates has come in; the other nodes go on training.

    A round here is what leads to one version.  A node is busy until its reply is returned, or until the timeout of its message
    is over.  Messages of other types than training are answered as by the wrapped grid.
    """

    def __init__(self, grid: Grid, mode: AsyncMode) -> None:
        super().__init__(grid)
        self._mode, self._clock = mode, clock_of(grid)
        self._training: dict[str, Training] = {}
        self._arrived: list[tuple[Message, Training]] = []
        self._round, self._trains = 0, False

    @property
    def busy(self) -> frozenset[int]:
        """The nodes whose update is not handed out yet."""
        return frozenset(each.node for each in self._training.values()) | {each.node for _, each in self._arrived}

    def idle(self, messages: Sequence[Message], *, train: bool) -> list[Message]:
        """Return those `messages` that go to idle nodes; in training, as many as keep ``len(messages)`` nodes busy."""
        self._trains, busy = train, self.busy
        idle = [message for message in messages if message.metadata.dst_node_id not in busy]
        return idle[: max(0, len(messages) - len(busy))] if train else idle

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages; if they train, return the replies of this and earlier rounds that fill the buffer."""
        messages = list(messages)
        kinds = {message.metadata.message_type.split(".")[0] for message in messages}
        trains, self._trains = kinds == {MessageType.TRAIN} or (self._trains and not messages), False
        if not trains:
            return super().send_and_receive(messages, timeout=timeout)
        self._round += 1
        deadline_s = self._clock.now() + (FOREVER_S if timeout is None else timeout)
        sent = set(self.push_messages(messages))
        for message in messages:
            if message.metadata.message_id in sent:  # the others were refused, and Flower has logged why
                training = Training(message.metadata.dst_node_id, self._round, deadline_s)
                self._training[message.metadata.message_id] = training
        self._wait()
        return self._hand_out()

    def _wait(self) -> None:
        """Collect replies until the buffer is full, or nobody is left who could fill it."""
        attempt = 0
        while self._training and self._updates() < self._mode.buffer:
            pulled = [(each.metadata.reply_to_message_id, each) for each in self.pull_messages(list(self._training))]
            self._arrived += [(reply, self._training[key]) for key, reply in pulled if key in self._training]
            for key, _ in pulled:
                self._training.pop(key, None)
            if pulled:
                attempt = 0
                continue
            now_s = self._clock.now()
            self._training = {key: each for key, each in self._training.items() if each.deadline_s > now_s}
            if self._training:
                first_s = min(each.deadline_s for each in self._training.values())
                self._clock.wait(first_s - now_s, attempt)
                attempt += 1

    def _hand_out(self) -> list[Message]:
        """Return the replies that came first, up to the one that fills the buffer; keep the others for the next version."""
        replies, nodes = list[Message](), set[int]()
        while self._arrived and (len(nodes) < self._mode.buffer or self._arrived[0][1].node in nodes):  # came twice
            reply, training = self._arrived.pop(0)
            replies.append(reply)
            if self._counts(reply, training):
                nodes.add(training.node)
        return replies

    def _updates(self) -> int:
        return len({training.node for reply, training in self._arrived if self._counts(reply, training)})

    def _counts(self, reply: Message, training: Training) -> bool:
        """Return whether a reply fills the buffer: an error does not, nor does an update that will be refused as too old."""
        return not reply.has_error() and self._round - training.round <= self._mode.staleness
