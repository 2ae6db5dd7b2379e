"""A line per round: how accurate the model is, what the round cost, and how long the run will still take."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from fedcomp.core import format_bytes
from server.run_records import RoundRecord

NUM_RECENT = 10
"""The rounds whose median time predicts the time of the others."""


@dataclass(slots=True)
class Progress:
    """Turns the records of a run, as they come, into lines; `num_rounds` is the number of the last round."""

    num_rounds: int
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_RECENT))
    _warm: bool = False

    def line(self, record: RoundRecord) -> str:
        """Return the line of a round: its number, accuracy, also that on the nodes, bytes each way, and the time left."""
        width = len(str(self.num_rounds))
        parts = [f"round {record.round:{width}}/{self.num_rounds}"]
        parts.append("accuracy       -" if record.accuracy is None else f"accuracy {record.accuracy:7.1%}")
        if record.eval_accuracy is not None:
            parts.append(f"nodes {record.eval_accuracy:7.1%}")
        if record.round > 0:
            parts.append(f"up {format_bytes(record.traffic.uplink_bytes):>8}")
            parts.append(f"down {format_bytes(record.traffic.downlink_bytes):>8}")
            if self._warm:  # the first round also starts the nodes: its time predicts nothing
                self._recent.append(record.seconds)
                parts.append(f"{format_seconds(seconds_left(self._recent, self.num_rounds - record.round))} left")
            self._warm = True
        return "  ".join(parts)


def seconds_left(recent: Iterable[float], num_rounds: int) -> float:
    """Return how long `num_rounds` more rounds will take, given the seconds of recent ones."""
    return median(recent) * num_rounds


def format_seconds(seconds: float) -> str:
    """Return a duration in its two largest units, such as 1 min 12 s."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
