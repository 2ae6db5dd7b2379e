"""Training without rounds: a version is published whenever some updates have come in, whoever they are from.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff), AISTATS 2022, with the residuals of
Tang et al., "DoubleSqueeze", ICML 2019, on both sides: those of the compressors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from flwr.app import Message, MessageType
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import build, check_bool, check_int, check_range, format_call
from fedcomp.flower.compat import GridWrapper, clock_of, nested_strategies
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.optimizers import MajorityVote
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of
from fedcomp.flower.strategies.rigl import RigL

MAX_BUFFER = 1_000_000
MAX_STALENESS = 1_000_000
FOREVER_S = 1e12


@dataclass(frozen=True, slots=True)
class AsyncMode:
    """Frozen settings: a version is published with every `buffer` updates, none of them more than `staleness` versions old.

    An update that starts from a version s versions before the published one counts ``(1 + s) ** -exponent`` times, which is
    1 / sqrt(1 + s) as in FedBuff by default; with an exponent of 0, all updates count alike.  An update from before the last
    `staleness` versions is refused, and its content goes back to the residual of its node.  With `return_rest`, so does the
    share by which a late update counts less: all of what a node learned arrives, with as many of its updates as that takes.

    Raises `ValueError` for a buffer or a staleness below 1, and a negative exponent.

    Examples:
        >>> mode = AsyncMode(buffer=4)
        >>> str(mode), mode.weight(3)
        ('async(buffer=4, staleness=20, exponent=0.5)', 0.5)
    """

    buffer: int = 10
    staleness: int = 20
    exponent: float = 0.5
    return_rest: bool = False

    def __post_init__(self) -> None:
        check_int("buffer", self.buffer, 1, MAX_BUFFER, "the number of updates of a version")
        check_int("staleness", self.staleness, 1, MAX_STALENESS, "the most versions that an update may be late")
        check_range("exponent", self.exponent, least=0)
        check_bool("return_rest", self.return_rest)

    def __str__(self) -> str:
        named = asdict(self)
        if not self.return_rest:
            del named["return_rest"]
        return format_call("async", named)

    def weight(self, staleness: int) -> float:
        """Return how many times an update counts that starts from the version `staleness` versions ago."""
        return float((1 + staleness) ** -self.exponent)

    def returned(self, staleness: int) -> float:
        """Return the share of such an update that goes back to its node."""
        return 1 - self.weight(staleness) if self.return_rest else 0.0


def rounds() -> None:
    """Return None: each version is that of a round, which waits for all its nodes."""


def asynchronous(buffer: int = 10, staleness: int = 20, exponent: float = 0.5, return_rest: bool = False) -> AsyncMode:
    """Return an `AsyncMode`."""
    return AsyncMode(buffer, staleness, exponent, return_rest)


MODES: Mapping[str, Callable[..., AsyncMode | None]] = {"sync": rounds, "async": asynchronous}
"""Name -> maker of each way to wait for updates; None is rounds."""


def parse_mode(text: str) -> AsyncMode | None:
    """Return the mode that `text` names, such as ``"async(buffer=10, staleness=20)"``; None for ``"sync"``, which is rounds.

    Raises `ValueError` for another form, an unknown name, and numbers below 1.
    """
    return build(text, MODES, "mode")


def check_async(inner: Strategy, mode: object = None, uplink: Compressor | None = None) -> None:
    """Raise `ValueError` for a strategy that cannot take updates of several versions, and for a `mode` that is none.

    Also for an `uplink` without a memory, if late updates are to return to it.
    """
    if mode is not None and not isinstance(mode, AsyncMode):
        raise ValueError(f"mode is {mode!r}; an AsyncMode is needed, or None for rounds; parse_mode makes it from text")
    returns = isinstance(mode, AsyncMode) and mode.return_rest
    if returns and isinstance(aggregating(inner), MajorityVote):
        raise ValueError(
            "return_rest is True, and MajorityVote counts late votes whole; no share of them is left to return"
        )
    if returns and uplink is not None and not uplink.memory.vectors:
        raise ValueError(
            f"return_rest is True, and uplink {uplink} keeps nothing between updates; one with a memory is needed, such as "
            "stc(density=0.02)"
        )
    if reply_use_of(inner) is ReplyUse.INCREMENTS:
        raise ValueError(
            f"{type(aggregating(inner)).__name__} sums the increments of all nodes, and a late one cannot count less; "
            "it needs rounds, mode 'sync'"
        )
    for _, strategy in nested_strategies(inner):
        count = getattr(strategy, "num_sampled_clients", None)
        if isinstance(mode, AsyncMode) and count is not None and count != mode.buffer:
            raise ValueError(
                f"{type(strategy).__name__} makes noise for {count} updates, and a version has those of {mode.buffer}; "
                f"num_sampled_clients={mode.buffer} is needed"
            )
    if isinstance(aggregating(inner), RigL):
        raise ValueError("RigL moves the masks by reports of one round; it needs rounds, mode 'sync'")


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
        """Return how many nodes' updates have arrived."""
        return len({training.node for reply, training in self._arrived if self._counts(reply, training)})

    def _counts(self, reply: Message, training: Training) -> bool:
        """Return whether a reply fills the buffer: an error does not, nor does an update that will be refused as too old."""
        return not reply.has_error() and self._round - training.round <= self._mode.staleness
