"""Training without rounds: a version is published whenever some updates have come in, whoever they are from.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff), AISTATS 2022, with the residuals of
Tang et al., "DoubleSqueeze", ICML 2019, on both sides: those of the compressors.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import build, check_bool, check_int, check_range, format_call, use_python_numbers
from fedcomp.flower.compat import nested_strategies
from fedcomp.flower.strategies.optimizers import MajorityVote
from fedcomp.flower.strategies.reply_use import ReplyUse, innermost, reply_use_of
from fedcomp.flower.strategies.rigl import RigL

MAX_BUFFER = 1_000_000
MAX_STALENESS = 1_000_000


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
        use_python_numbers(self)
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
    if returns and isinstance(innermost(inner), MajorityVote):
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
            f"{type(innermost(inner)).__name__} sums the increments of all nodes, and a late one cannot count less; "
            "it needs rounds, mode 'sync'"
        )
    for _, strategy in nested_strategies(inner):
        count = getattr(strategy, "num_sampled_clients", None)
        if isinstance(mode, AsyncMode) and count is not None and count != mode.buffer:
            raise ValueError(
                f"{type(strategy).__name__} makes noise for {count} updates, and a version has those of {mode.buffer}; "
                f"num_sampled_clients={mode.buffer} is needed"
            )
    if isinstance(innermost(inner), RigL):
        raise ValueError("RigL moves the masks by reports of one round; it needs rounds, mode 'sync'")
