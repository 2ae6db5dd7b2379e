"""A Flower grid that runs the ClientApp in this process, node after node: for studies and tests, without Ray.

It can inject faults: lost messages, lost or doubled replies, nodes that crash or lose their state.
"""

import math
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from logging import ERROR

from flwr.app import Context, Message, MessageType, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedcomp.core import check_int
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState
from fedcomp.flower.compat import (
    Clock,
    NodeSpeed,
    Run,
    error_of_app,
    log,
    make_message,
    set_message_id,
    set_task_identity,
)
from fedcomp.flower.records import array_records, dense_size


class Fault(Enum):
    """A failure of one message to a node."""

    LOSE_MESSAGE = auto()  # the message never reaches the node
    LOSE_REPLY = auto()  # the node works, but its reply never reaches the server
    DELIVER_TWICE = auto()  # the node gets the message twice, and the server gets both replies
    DOUBLE_REPLY = auto()  # the server gets the reply twice
    CRASH = auto()  # the node crashes while it works: no reply, and its state is the one before the message
    FORGET = auto()  # the node has lost its state when the message arrives


class LocalGrid(Grid, Clock):
    """A grid of nodes with the ids 1 to `num_nodes`, each with its own ``Context``.

    A ClientApp that raises gives an error reply, and its node's state stays as it was before the message.

    With `speeds`, replies arrive in virtual time, in the order in which such nodes would send them: each takes as long as its
    node needs for the message, its work and the reply.  `now` is that time; waiting costs none of the real one.

    Attributes:
        contexts: node id -> its context.  Its ``node_config`` holds ``partition-id`` (id - 1) and ``num-partitions``, as in
            Flower's simulation.
        faults: node id -> the faults that it has not had yet.
        seconds: for each batch of messages, node id -> seconds that its ClientApp took.

    Examples:
        >>> from flwr.app import Message, RecordDict
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.query()
        ... def answer(message, context):
        ...     return Message(RecordDict(), reply_to=message)
        >>> grid = LocalGrid(app, num_nodes=3)
        >>> [reply] = grid.send_and_receive([Message(RecordDict(), dst_node_id=2, message_type="query")])
        >>> reply.metadata.src_node_id
        2

    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        run_config: UserConfig | None = None,
        node_config: Callable[[int], UserConfig] | None = None,
        *,
        in_memory: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        speeds: Callable[[int, int], NodeSpeed] | None = None,
    ) -> None:
        """Make the nodes.

        Args:
            client_app: runs on every node.
            num_nodes: how many nodes there are, at least 1.
            run_config: the run configuration, the same in every context.
            node_config: gives, for a node id, entries to add to its node configuration.  A ``state-dir`` there is for one
                training: all grids are run 1 of Flower.
            in_memory: whether the mod's state stays in memory as it is, and nodes share decoded frames.  Messages and models
                have the same bytes, in less time; but the mod's state then advances even if the ClientApp raises.
            clock: gives the current time in seconds, by which `seconds` are measured.
            speeds: gives, for a node id and the number of messages to it before, the speed of the node, such as `Speeds`.
                None for replies that arrive at once.

        Raises:
            ValueError: there are no nodes.

        """
        self._clock = clock
        check_int("num_nodes", num_nodes, 1, 1_000_000)
        num_nodes = int(num_nodes)
        self._app = client_app
        self._run = Run.create_empty(run_id=1)
        self.faults: defaultdict[int, deque[Fault]] = defaultdict(deque)
        self._replies: dict[str, tuple[float, list[Message]]] = {}
        self._speeds = speeds
        self._now_s = 0.0
        self._free_s: defaultdict[int, float] = defaultdict(float)
        self._messages: defaultdict[int, int] = defaultdict(int)
        self._sent = 0
        self._shared = DecodeCache() if in_memory else None
        self.seconds: list[dict[int, float]] = []
        self.contexts: dict[int, Context] = {}
        for node in range(1, num_nodes + 1):
            config: UserConfig = {"partition-id": node - 1, "num-partitions": num_nodes}
            config |= node_config(node) if node_config else {}
            self.contexts[node] = Context(self._run.run_id, node, config, self._fresh(), dict(run_config or {}))
        set_task_identity(self._run.run_id)

    def order(self, node: int, *faults: Fault) -> None:
        """Inject `faults` into the next messages to `node`, one into each."""
        self.faults[node].extend(faults)

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run of the grid."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message; Flower deprecates this way to make one."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp on each message, in order, and keep the replies; return the messages' ids."""
        ids: list[str] = []
        self.seconds.append({})
        for message in messages:
            self._sent += 1
            ids.append(str(self._sent))
            set_message_id(message, ids[-1])
            replies = self._deliver(message)
            arrival_s = self._arrival_s(message, replies)
            self._replies[ids[-1]] = arrival_s, replies
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages that have arrived by `now`, each once, in the order in which they arrived."""
        known = [message_id for message_id in message_ids if message_id in self._replies]
        arrived = [message_id for message_id in known if self._replies[message_id][0] <= self._now_s]
        arrived.sort(key=lambda message_id: self._replies[message_id][0])
        return [reply for message_id in arrived for reply in self._replies.pop(message_id)[1]]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Run the ClientApp on each message, in order, and return the replies that arrive within `timeout` seconds.

        With `speeds`, the time passes until the last of them; until the timeout if one is lost.
        """
        ids = list(self.push_messages(messages))
        if self._speeds is not None:
            last_s = max((self._replies[message_id][0] for message_id in ids), default=self._now_s)
            end_s = self._now_s + (math.inf if timeout is None else timeout)
            if min(last_s, end_s) < math.inf:  # else the server would wait for a lost reply without an end
                self._now_s = min(last_s, end_s)
        return self.pull_messages(ids)

    def now(self) -> float:
        """Return the virtual time in seconds; 0 at first."""
        return self._now_s

    def wait(self, seconds: float, attempt: int = 0) -> None:
        """Let the virtual time pass until the next reply arrives, at most `seconds`."""
        coming_s = [arrival_s for arrival_s, _ in self._replies.values() if arrival_s > self._now_s]
        self._now_s = min([self._now_s + seconds, *coming_s])

    def _arrival_s(self, message: Message, replies: list[Message]) -> float:
        """Return the virtual time at which the replies to `message`, which leaves now, arrive; a lost one never does."""
        if not replies:
            return math.inf
        if self._speeds is None:
            return self._now_s
        node, reply = message.metadata.dst_node_id, replies[0]
        speed = self._speeds(node, self._messages[node])
        self._messages[node] += 1
        computes = message.metadata.message_type.split(".")[0] != MessageType.QUERY
        begin_s = max(self._free_s[node], self._now_s + speed.down_s(_size(message)))
        self._free_s[node] = begin_s + (speed.compute_s if computes else 0.0)
        return self._free_s[node] + speed.up_s(_size(reply))

    def _deliver(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        fault = self.faults[node].popleft() if self.faults[node] else None
        if fault is Fault.LOSE_MESSAGE:
            return []
        if fault is Fault.FORGET:
            self.contexts[node].state = self._fresh()
        before = self.contexts[node].state
        if fault is Fault.CRASH and isinstance(before, InMemoryState):
            before = before.snapshot()
        replies = [self._handle(message)]
        if fault is Fault.DELIVER_TWICE:
            replies.append(self._handle(message))
        if fault is Fault.DOUBLE_REPLY:
            replies.append(_copied(replies[0]))
        if fault is Fault.CRASH:
            self.contexts[node].state = before
        return [] if fault in (Fault.CRASH, Fault.LOSE_REPLY) else replies

    def _handle(self, message: Message) -> Message:
        """Return the ClientApp's reply; its context is kept only if it returns."""
        context = self.contexts[message.metadata.dst_node_id]
        state, run_config = _copy(context.state), dict(context.run_config)
        working = Context(context.run_id, context.node_id, context.node_config, state, run_config)
        self._saved_seconds()  # drop those of a call that raised
        begin = self._clock()
        try:
            reply = self._app(_copied(message), working)
        except Exception as error:  # noqa: BLE001 - as in Flower, the node answers with the error
            log(ERROR, "%s", traceback.format_exc())
            return Message(error_of_app(error), reply_to=message)
        context.state = working.state
        spent = self.seconds[-1]
        spent[context.node_id] = spent.get(context.node_id, 0.0) + self._clock() - begin + self._saved_seconds()
        return reply

    def _fresh(self) -> RecordDict:
        return InMemoryState(self._shared) if self._shared else RecordDict()

    def _saved_seconds(self) -> float:
        """Return the seconds that shared decoding saved in the last call; the node alone would have spent them."""
        if self._shared is None:
            return 0.0
        seconds, self._shared.saved_seconds = self._shared.saved_seconds, 0.0
        return seconds


def _size(message: Message) -> int:
    return sum(map(dense_size, array_records(message.content).values())) if message.has_content() else 0


def _copied(message: Message) -> Message:
    """Return a copy of a message with its own records, as a network would make it."""
    if not message.has_content():
        return message
    return make_message(message.metadata, _copy(message.content))


def _copy(records: RecordDict) -> RecordDict:
    """Return copies of the records; arrays share their bytes, which are immutable."""
    copies = records.copy()
    for key, record in records.items():
        copies[key] = record.copy()
    return copies
