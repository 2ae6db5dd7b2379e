"""The time in which a grid lives: the wall clock, or the virtual time of `LocalGrid`, in which runs repeat to the bit."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedcomp.core import check_int, check_range, use_python_numbers

MIN_POLL_S, MAX_POLL_S, POLL_GROWTH = 0.05, 3.0, 1.1
"""The shortest and the longest pause between two questions for replies, and their ratio from one to the next.

A pause is then about a tenth of the time waited so far.  Flower's own pause is 3 s with a SuperLink.
"""
MAX_SEED = 2**63 - 1
ROUND_TRIPS = 2
"""Round trips of a message: its node fetches it, and delivers the reply."""


class Clock(ABC):
    """Tells the time, and waits for replies."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since some moment in the past."""

    @abstractmethod
    def wait(self, seconds: float, attempt: int) -> None:
        """Return when a reply may have arrived, at the latest after `seconds`.

        `attempt` is the number of calls since the last reply.
        """


class WallClock(Clock):
    """Sleeps, longer after each attempt."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set back."""
        return time.monotonic()

    def wait(self, seconds: float, attempt: int) -> None:
        """Sleep for 0.05 to 3 seconds."""
        time.sleep(min(seconds, MAX_POLL_S, MIN_POLL_S * POLL_GROWTH ** min(attempt, 100)))


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """The time that a node takes for a message: `compute_s` for training or evaluation, and its link.

    Attributes:
        compute_s: Seconds from the last byte of the message to the first byte of the reply.
        down_mbit_s: The rate to the node, in 10^6 bits a second; infinite for a link without delay.
        up_mbit_s: The rate from the node.
        round_trip_s: Seconds that a packet takes to the server and back.
    """

    compute_s: float = 0.0
    down_mbit_s: float = float("inf")
    up_mbit_s: float = float("inf")
    round_trip_s: float = 0.0

    def down_s(self, size: int) -> float:
        """Return the seconds until the node has a message of `size` bytes."""
        return self.round_trip_s + size * 8 / (self.down_mbit_s * 1e6)

    def up_s(self, size: int) -> float:
        """Return the seconds until the server has a reply of `size` bytes."""
        return (ROUND_TRIPS - 1) * self.round_trip_s + size * 8 / (self.up_mbit_s * 1e6)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Seeded speeds: some nodes are slow, and no node takes the same time twice.

    A share `slow` of the nodes, drawn by `seed`, takes `slowdown` times as long as the others.  The time of each message varies
    log-normally by a factor of about 1 + `spread`.  All nodes have the same link.

    Raises `ValueError` for settings out of range.

    Examples:
        >>> speeds = Speeds(compute_s=2.0, slow=0.5, slowdown=10.0, spread=0.0, seed=5)
        >>> [speeds(node, 0).compute_s for node in (1, 2, 3, 4)]
        [2.0, 20.0, 2.0, 20.0]
    """

    compute_s: float = 1.0
    slow: float = 0.1
    slowdown: float = 10.0
    spread: float = 0.2
    down_mbit_s: float = float("inf")
    up_mbit_s: float = float("inf")
    round_trip_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_range("compute_s", self.compute_s, least=0)
        check_range("slow", self.slow, least=0, most=1, what="the share of slow nodes")
        check_range("slowdown", self.slowdown, least=1)
        check_range("spread", self.spread, least=0)
        check_range("round_trip_s", self.round_trip_s, least=0)
        for name in ("down_mbit_s", "up_mbit_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is a rate in Mbit/s, above 0")
        check_int("seed", self.seed, 0, MAX_SEED)

    def is_slow(self, node: int) -> bool:
        """Return whether `node` is one of the slow ones."""
        return float(np.random.default_rng([self.seed, node]).random()) < self.slow

    def __call__(self, node: int, number: int) -> NodeSpeed:
        """Return the speed of `node` for its message `number`, counted from 0."""
        factor = self.slowdown if self.is_slow(node) else 1.0
        factor *= float(
            np.exp(np.log1p(self.spread) * np.random.default_rng([self.seed, node, number]).standard_normal())
        )
        return NodeSpeed(self.compute_s * factor, self.down_mbit_s, self.up_mbit_s, self.round_trip_s)
