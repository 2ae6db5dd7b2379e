"""What a strategy needs of each reply: without it, the code of Flower would end the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg, MultiKrum, Strategy

from fedcomp.errors import CorruptError
from fedcomp.flower.compat import aggregate_metricrecords, code_of, is_library_code
from fedcomp.flower.records import Contents
from fedcomp.flower.strategies.reply_use import ReplyDeclaration, ReplyUse, innermost, reply_use_of
from fedcomp.sync import Update

MAX_EXAMPLE_WEIGHT = float(1 << 53)
"""The largest weight of an update: float64 counts up to it exactly."""


class MissingRecordError(CorruptError):
    """A reply lacks a record that the strategy needs, as if its app were written for another one."""


@dataclass(frozen=True, slots=True)
class ReplyNeeds:
    """What a strategy needs of each reply; without it, the strategy raises, and the run would end.

    Attributes:
        train: Whether the replies are those of training; otherwise those of evaluation.
        weight_key: The name of the metric that weighs a reply; None if the strategy names none.
        strict: Whether each reply must have exactly one MetricRecord, with the weight in it, and in training the model.
        one_array_record: Whether an ArrayRecord other than the model must be one of `further_records`.
        further_records: The keys of further ArrayRecords that the strategy reads.
        divides: Whether the sum of all weights must not be 0.
        selects: Whether the strategy may select a single reply, so that no weight may be 0.
        averages: Whether the strategy is FedAvg or derived from it, which aggregates only metrics of the same names.
    """

    train: bool
    weight_key: str | None = None
    strict: bool = False
    one_array_record: bool = False
    further_records: frozenset[str] = frozenset()
    divides: bool = False
    selects: bool = False
    averages: bool = False

    @classmethod
    def of(cls, strategy: Strategy, *, train: bool) -> "ReplyNeeds":
        """Return the needs of `strategy`: those of the code of Flower and fedcomp in it, since other code is unknown."""
        mean = train and reply_use_of(strategy) is ReplyUse.MEAN
        inner = innermost(strategy)
        if not isinstance(inner, FedAvg):
            return cls(train, getattr(inner, "weighted_by_key", None))
        method = code_of(inner, "aggregate_train" if train else "aggregate_evaluate")
        strict = mean or is_library_code(method)
        further = inner.further_records if isinstance(inner, ReplyDeclaration) else frozenset[str]()
        divides = strict and (train or inner.evaluate_metrics_aggr_fn is aggregate_metricrecords)
        selects = strict and train and isinstance(inner, MultiKrum)
        one_array_record = strict and train and not mean
        return cls(train, inner.weighted_by_key, strict, one_array_record, further, divides, selects, True)

    def check(self, contents: Contents, update: Update | None) -> None:
        """Raise `CorruptError` for a reply that lacks something; `contents` are its records, and `update` is in its frame."""
        metrics, keys = contents.metrics, contents.array_keys
        if self.strict and len(metrics) != 1:
            raise MissingRecordError(f"it holds {len(metrics)} MetricRecords; one is needed")
        if self.strict and self.train and update is None:
            raise MissingRecordError(
                "none of its ArrayRecords is the model: one with its names and shapes, not under the key of another record of "
                "the message"
            )
        if self.one_array_record and len(keys - self.further_records) != 1:
            needed = " and ".join(["the model", *sorted(self.further_records)])
            raise MissingRecordError(f"it holds the ArrayRecords {sorted(keys)}; the strategy reads only {needed}")
        if self.strict and any(self.weight_key not in record for record in metrics.values()):
            raise MissingRecordError(f"its metrics hold no {self.weight_key!r}, by which the strategy weighs it")
        for record in metrics.values():
            weight = record.get(self.weight_key, 1) if self.weight_key else 1
            if not isinstance(weight, int | float) or not 0 <= weight <= MAX_EXAMPLE_WEIGHT:
                raise CorruptError(f"its weight {self.weight_key!r} is {weight}; a number from 0 to 2^53 is needed")
            if self.selects and not weight:
                raise CorruptError("its weight is 0; the strategy may select it alone, and needs a weight above 0")

    def weight(self, metrics: Mapping[str, MetricRecord]) -> float:
        """Return the weight of a reply with `metrics` that passed `check`; 1 if it does not matter."""
        if not self.divides or not self.weight_key:
            return 1
        (record,) = metrics.values()
        return cast(float, record[self.weight_key])
