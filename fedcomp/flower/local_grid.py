"""A Flower grid that runs the ClientApp in this process, node after node: for studies and tests, without Ray.

Faults can be ordered: messages lost, replies lost or doubled, nodes that crash or forget.
"""

import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from logging import ERROR

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedcomp.flower._compat import ErrorCode, Run, log, make_message, set_message_id, set_task_identity
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState


class Fault(Enum):
    """What goes wrong with the next message to a node."""

    LOSE_MESSAGE = auto()  # it never reaches the node
    LOSE_REPLY = auto()  # the node works, its reply never reaches the server
    DELIVER_TWICE = auto()  # the node gets the message twice, the server both replies
    DOUBLE_REPLY = auto()  # the server gets the reply twice
    CRASH = auto()  # the node dies at work: its state is as before, no reply
    FORGET = auto()  # the node has lost its state when the message arrives


class LocalGrid(Grid):
    """`num_nodes` nodes with the ids 1 to `num_nodes`, each with its own ``Context``.

    ``node_config`` holds ``partition-id`` (id - 1) and ``num-partitions``, as in Flower's simulation; `node_config` adds to
    it.  A node's state outlives a message only if the ClientApp returned.  A ClientApp that raises gives an error reply.

    With `in_memory`, for studies, what the mod remembers stays in memory as it is, and nodes share work that is the same for
    all: the bytes of the messages and the models are those of nodes on their own, in less time.  What the mod has taken in
    then stays even where the ClientApp raises.

    `seconds` are those that the nodes' ClientApps took, node -> seconds for each batch of messages that was sent.
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
    ) -> None:
        """Make the nodes; `node_config` maps a node id to more of its configuration, `clock` gives seconds."""
        self._clock = clock
        if num_nodes < 1:
            raise ValueError(f"num_nodes is {num_nodes}; it is at least 1")
        self._app = client_app
        self._run = Run.create_empty(run_id=1)
        self._faults: defaultdict[int, deque[Fault]] = defaultdict(deque)
        self._replies: dict[str, list[Message]] = {}
        self._sent = 0
        self._shared = DecodeCache() if in_memory else None
        self.seconds: list[dict[int, float]] = []
        self.contexts: dict[int, Context] = {}
        for node in range(1, num_nodes + 1):
            config: UserConfig = {"partition-id": node - 1, "num-partitions": num_nodes}
            config |= node_config(node) if node_config else {}
            self.contexts[node] = Context(self._run.run_id, node, config, self._fresh(), dict(run_config or {}))
        # A message can be made only in a process that has a task's identity; here there is no SuperLink to give one.
        set_task_identity(self._run.run_id)

    def order(self, node: int, *faults: Fault) -> None:
        """Let the next messages to `node` suffer `faults`, one each."""
        self._faults[node].extend(faults)

    def ordered(self, node: int) -> tuple[Fault, ...]:
        """Return the faults that are still to come to `node`."""
        return tuple(self._faults[node])

    def clear(self, node: int) -> None:
        """Let nothing more go wrong with `node`."""
        self._faults[node].clear()

    def set_run(self, run: Run) -> None:
        """Set the run that this grid works for."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that this grid works for."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message, as Flower's deprecated way of making one."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp on each message, in order, and keep the replies; return the messages' ids."""
        ids = []
        self.seconds.append({})
        for message in messages:
            self._sent += 1
            set_message_id(message, str(self._sent))
            self._replies[message.metadata.message_id] = self._deliver(message)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages, each once."""
        return [reply for message_id in message_ids for reply in self._replies.pop(message_id, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Run the ClientApp on each message, in order, and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        fault = self._faults[node].popleft() if self._faults[node] else None
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
        working = Context(
            context.run_id, context.node_id, context.node_config, _copy(context.state), dict(context.run_config)
        )
        self._saved_seconds()  # what a call that raised has left
        begin = self._clock()
        try:
            reply = self._app(_copied(message), working)
        except Exception as error:  # as Flower does: the node answers with the error
            log(ERROR, "%s", traceback.format_exc())
            reason = f"{type(error)}:<'{error}'>"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        context.state = working.state
        spent = self.seconds[-1]
        spent[context.node_id] = spent.get(context.node_id, 0.0) + self._clock() - begin + self._saved_seconds()
        return reply

    def _fresh(self) -> RecordDict:
        return InMemoryState(self._shared) if self._shared else RecordDict()

    def _saved_seconds(self) -> float:
        """Return the seconds that the last call would have taken more, had the node been on its own."""
        if self._shared is None:
            return 0.0
        seconds, self._shared.saved_seconds = self._shared.saved_seconds, 0.0
        return seconds


def _copied(message: Message) -> Message:
    """Return a message of its own records, as if it had crossed a network."""
    if not message.has_content():
        return message
    return make_message(message.metadata, _copy(message.content))


def _copy(records: RecordDict) -> RecordDict:
    """Return records of their own; the bytes of arrays are shared, for nobody can write them."""
    copies = records.copy()
    for key, record in records.items():
        copies[key] = record.copy()
    return copies
