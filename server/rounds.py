"""The server's part of a round: evaluate the published model, write the record, print the progress."""

import time
from dataclasses import dataclass, field, replace

from flwr.app import ArrayRecord, MetricRecord

from fedcomp.flower import CompressedStrategy
from fedcomp.sync import Traffic
from server import report
from server.evaluate import Evaluator, to_npz
from server.folder import RunFolder
from server.progress import Progress
from server.run_records import RoundRecord, round_record
from server.run_status import RunStatus
from server.settings import Settings


@dataclass(slots=True)
class RunLog:
    """The rounds of a run, evaluated, in its folder and on the screen.

    It continues after the `records` in `folder`, which a resumed run has.
    """

    settings: Settings
    folder: RunFolder
    evaluator: Evaluator
    records: list[RoundRecord] = field(init=False)
    _progress: Progress = field(init=False)
    _last_call: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.records, self._progress = self.folder.records(), Progress(self.settings.num_rounds)

    @property
    def diverged(self) -> bool:
        """Whether the last loss that was measured is no number."""
        measured = [record.loss for record in self.records if record.accuracy is not None]
        return bool(measured) and measured[-1] is None

    def evaluate(self, number: int, arrays: ArrayRecord) -> tuple[float | None, float | None]:
        """Return loss and accuracy after a round, both `None` if it is not evaluated; a loss that is no number is `None`."""
        if number % self.settings.evaluate_every and number != self.settings.num_rounds:
            return None, None
        loss, accuracy = self.evaluator(arrays)
        return report.finite(loss), accuracy

    def seconds(self) -> float:
        """Return the seconds since the last call, or since the start."""
        before, self._last_call = self._last_call, time.monotonic()
        return self._last_call - before

    def add(self, record: RoundRecord) -> None:
        """Write the record of a round, and print its line."""
        self.records.append(record)
        self.folder.append(record)
        print(self._progress.line(record), flush=True)

    def write_results(self, totals: Traffic, arrays: ArrayRecord, *, draws: bool = True) -> None:
        """Write the summary and the model of a run that has ended, and if it `draws`, the figure."""
        self.folder.write_json(self.folder.summary.name, report.summarize(self.settings, self.records, totals))
        if draws:
            self.folder.write("accuracy.png", report.figure(self.settings, self.records))
        self.folder.write("model.npz", to_npz(arrays))


@dataclass(frozen=True, slots=True)
class Rounds:
    """Flower's `evaluate_fn`: called once before the first round and once after each."""

    log: RunLog
    strategy: CompressedStrategy
    status: RunStatus

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Return the test metrics of the published model, or `None` for a round that is not evaluated.

        Raises `RuntimeError` if no node sent an update in the first round.
        """
        seconds = self.log.seconds()
        self.status.update()
        if self.log.records and server_round <= self.log.records[-1].round:
            return None
        loss, accuracy = self.log.evaluate(server_round, arrays)
        no_result = server_round in self.strategy.failed_rounds
        ledger, names = self.strategy.ledger, self.strategy.compressors
        record = round_record(server_round, loss, accuracy, ledger, seconds, no_result=no_result, compressors=names)
        on_nodes = self.strategy.evaluate_metrics or MetricRecord()
        record = replace(
            record, eval_loss=_number(on_nodes.get("eval-loss")), eval_accuracy=_number(on_nodes.get("eval-accuracy"))
        )
        if server_round == 1 and record.traffic.uplink_bytes == 0:  # in later rounds, all nodes may be late at once
            raise RuntimeError(f"no node sent an update in round {server_round}; see the errors of the nodes")
        self.log.add(record)
        return None if loss is None or accuracy is None else MetricRecord({"loss": loss, "accuracy": accuracy})


def _number(metric: object) -> float | None:
    """Return what nodes reported, `None` if it is no finite number."""
    return report.finite(metric) if isinstance(metric, int | float) else None
