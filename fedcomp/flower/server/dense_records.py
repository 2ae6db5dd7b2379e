"""The array records that travel as they are, next to the frames: counted, and named in the log."""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from logging import INFO

from fedcomp.flower.compat import log
from fedcomp.sync import Traffic


class Link(Enum):
    """The messages that a record is in."""

    TRAIN_MESSAGE = "train messages"
    TRAIN_REPLY = "train replies"
    EVALUATE_MESSAGE = "evaluate messages"
    EVALUATE_REPLY = "evaluate replies"

    @property
    def is_uplink(self) -> bool:
        """Whether nodes send these messages."""
        return self in (Link.TRAIN_REPLY, Link.EVALUATE_REPLY)


class DenseRecords:
    """Counts the bytes of records that are not compressed, and logs each record in the first round in which it occurs.

    `total_bytes` is their sum over all messages.
    """

    def __init__(self) -> None:
        self.total_bytes = 0
        self._sizes: Counter[tuple[Link, str]] = Counter()
        self._logged: set[tuple[Link, str]] = set()

    def add(self, link: Link, sizes: Mapping[str, int]) -> None:
        """Count the records of one message; `sizes` are their bytes by key."""
        for key, size in sizes.items():
            self._sizes[link, key] += size
            self.total_bytes += size

    def log(self, traffic: Traffic, server_round: int) -> None:
        """Log the records that occur for the first time, with their share of the `traffic` of their direction in this round."""
        for (link, key), size in self._sizes.items():
            if size and (link, key) not in self._logged:
                direction, total = (
                    ("uplink", traffic.uplink_bytes) if link.is_uplink else ("downlink", traffic.downlink_bytes)
                )
                text = "fedcomp: round %d: the record %r of %s is not compressed: %d bytes, %.0f %% of the %s"
                log(INFO, text, server_round, key, link.value, size, 100 * size / total, direction)
                self._logged.add((link, key))
        self._sizes.clear()
