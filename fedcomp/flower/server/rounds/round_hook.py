"""Calls the user's `on_round` with the traffic and the metrics of each round: for trackers, logs and early stops."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from flwr.app import MetricRecord

from fedcomp.sync import Ledger, Traffic


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is over: its number, its traffic, and those of its metrics that exist.

    Attributes:
        number: From 1 on; a resumed run goes on counting.
        train_metrics: What the strategy aggregated of the nodes' train replies.
        evaluate_metrics: What it aggregated of the nodes' evaluate replies.
        server_metrics: The result of `evaluate_fn`.
        traffic: Bytes and seconds of this round, evaluation included.
        total: Bytes and seconds of the run so far, the rounds before a checkpoint included.
    """

    number: int
    train_metrics: MetricRecord | None = None
    evaluate_metrics: MetricRecord | None = None
    server_metrics: MetricRecord | None = None
    traffic: Traffic = field(default_factory=Traffic)
    total: Traffic = field(default_factory=Traffic)

    def scalars(self) -> dict[str, float]:
        """Return all numbers by name, as experiment trackers take them.

        Names are those of the metrics after ``train/``, ``evaluate/`` or ``server/``, and those of `Traffic` after ``round/``
        or ``total/``, such as ``total/uplink_bytes``; ``total/ratio`` is the compression ratio so far.  Metrics that are
        lists are left out.

        Examples:
            >>> Round(1, MetricRecord({"loss": 0.5}), traffic=Traffic(uplink_bytes=700)).scalars()["train/loss"]
            0.5
        """
        groups = {"train": self.train_metrics, "evaluate": self.evaluate_metrics, "server": self.server_metrics}
        numbers: dict[str, float] = {}
        for group, metrics in groups.items():
            if metrics is not None:
                numbers |= {f"{group}/{name}": one for name, one in metrics.items() if not isinstance(one, list)}
        for group, traffic in (("round", self.traffic), ("total", self.total)):
            numbers |= {f"{group}/{name}": amount for name, amount in asdict(traffic).items()}
        if self.total.sent_bytes:
            numbers["total/ratio"] = self.total.ratio
        return numbers


OnRound = Callable[[Round], object]
"""A callable for each round; its result is not used."""


class RoundHook:
    """Collects the metrics of a round as they come, and calls `on_round` when the round is over."""

    def __init__(self, on_round: OnRound | None) -> None:
        if on_round is not None and not callable(on_round):
            raise ValueError(f"on_round is {on_round!r}; a callable of a Round is needed")
        self._on_round = on_round
        self._round: Round | None = None

    @property
    def evaluate_metrics(self) -> MetricRecord | None:
        """What was aggregated of the nodes' evaluate replies in the round that is not over; None if there is nothing."""
        return self._round.evaluate_metrics if self._round else None

    def begin(self, number: int, train_metrics: MetricRecord | None) -> None:
        """Start to collect for round `number`, after its training."""
        self._round = Round(number, train_metrics)

    def add(self, number: int, *, evaluate: MetricRecord | None = None, server: MetricRecord | None = None) -> None:
        """Add metrics that are not None, unless they are of another round, such as round 0 before the first training."""
        if self._round is None or self._round.number != number:
            return
        if evaluate is not None:
            self._round = replace(self._round, evaluate_metrics=evaluate)
        if server is not None:
            self._round = replace(self._round, server_metrics=server)

    def end(self, ledger: Ledger) -> None:
        """Call `on_round` with the round, if there is one that was not reported; an exception names the round."""
        ended, self._round = self._round, None
        if ended is None or self._on_round is None:
            return
        ended = replace(ended, traffic=ledger.of_round(ended.number), total=ledger.total())
        try:
            self._on_round(ended)
        except Exception as error:
            error.add_note(f"fedcomp: raised by on_round after round {ended.number}, which is complete")
            raise

    def cancel(self) -> None:
        """Forget a round that did not end."""
        self._round = None
