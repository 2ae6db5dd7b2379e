"""The server's part of a round: evaluate the published model, write the record, print the progress."""

import time
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, MetricRecord

from fedcomp.flower import CompressedStrategy
from server.evaluate import Evaluator
from server.folder import RunFolder
from server.progress import Progress
from server.report import finite
from server.run_records import RoundRecord, round_record
from server.run_status import RunStatus
from server.settings import Settings


@dataclass(slots=True)
class Rounds:
    """Flower's `evaluate_fn`: called once before the first round and once after each.

    It continues after the `records` in `folder`, which a resumed run has.
    """

    settings: Settings
    folder: RunFolder
    evaluator: Evaluator
    strategy: CompressedStrategy
    status: RunStatus
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

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Return the test metrics of the published model, or `None` for a round that is not evaluated.

        Raises `RuntimeError` if no node sent an update in the first round.
        """
        now = time.monotonic()
        seconds, self._last_call = now - self._last_call, now
        self.status.update()
        if self.records and server_round <= self.records[-1].round:
            return None
        loss = accuracy = None
        if server_round % self.settings.evaluate_every == 0 or server_round == self.settings.num_rounds:
            loss, accuracy = self.evaluator(arrays)
        ledger = self.strategy.ledger
        no_result = server_round in self.strategy.failed_rounds
        loss = None if loss is None else finite(loss)
        names = self.strategy.compressors
        record = round_record(server_round, loss, accuracy, ledger, seconds, no_result=no_result, compressors=names)
        if server_round == 1 and record.traffic.uplink_bytes == 0:  # in later rounds, all nodes may be late at once
            raise RuntimeError(f"no node sent an update in round {server_round}; see the errors of the nodes")
        self.records.append(record)
        self.folder.append(record)
        print(self._progress.line(record), flush=True)
        return None if loss is None or accuracy is None else MetricRecord({"loss": loss, "accuracy": accuracy})
