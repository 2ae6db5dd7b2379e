"""The server's side of a round: evaluate the published model, write the record, say how it goes."""

import time
from dataclasses import asdict

from flwr.app import ArrayRecord, MetricRecord

from fedcomp.flower import CompressedStrategy
from server.evaluate import Evaluator
from server.folder import RunFolder
from server.progress import Progress
from server.report import finite
from server.round_record import RoundRecord, round_record
from server.run_status import RunStatus
from server.settings import Settings


class Rounds:
    """Flower's `evaluate_fn`: called once before the first round and once after each."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        evaluator: Evaluator,
        strategy: CompressedStrategy,
        standings: RunStatus,
    ) -> None:
        """The rounds that `folder` has on record stay as they are: a resumed run goes on after them."""
        self.records: list[RoundRecord] = folder.records()
        self._settings = settings
        self._folder = folder
        self._evaluator = evaluator
        self._strategy = strategy
        self._standings = standings
        self._progress = Progress(settings.num_rounds)
        self._since = time.monotonic()

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Return the test metrics of the published model, or `None` for a round that is not evaluated."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        self._standings.update()
        if self.records and server_round <= self.records[-1].round:
            return None
        loss = accuracy = None
        if server_round % self._settings.evaluate_every == 0 or server_round == self._settings.num_rounds:
            loss, accuracy = self._evaluator(arrays)
        ledger = self._strategy.ledger
        record = round_record(server_round, None if loss is None else finite(loss), accuracy, ledger, seconds)
        if server_round == 1 and record.uplink_bytes == 0:  # later, nodes may all be late at once
            raise RuntimeError(f"no node sent an update in round {server_round}; the nodes' own errors say why")
        self.records.append(record)
        self._folder.append(asdict(record))
        print(self._progress.line(record), flush=True)
        return None if loss is None or accuracy is None else MetricRecord({"loss": loss, "accuracy": accuracy})
