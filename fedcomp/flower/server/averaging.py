"""Strategies that look at nothing but the weighted mean of the replies: they get it as one merged reply, summed sparsely."""

from logging import INFO, WARNING
from typing import cast

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.flower import records
from fedcomp.flower._compat import aggregate_metricrecords, log, make_message, validate_message_reply_consistency
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.server.reply_validator import ValidatedReply
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.sync import Replica, Update, weighted_mean


def aggregate_mean(
    inner: Strategy, server_round: int, answers: list[ValidatedReply], failed: list[Message], published: Replica
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Return what `inner` makes of the weighted mean of the updates, and the metrics of all replies.

    `inner` is one of `ReplyUse.MEAN`.  Each answer holds an update; they are summed in their order, O(kept) each.
    """
    inner = cast(FedAvg, aggregating(inner))
    key = inner.weighted_by_key
    contents = [answer.message.content for answer in answers]
    if contents:
        validate_message_reply_consistency(contents, key, check_arrayrecord=False)
    weights = [float(cast(float, next(iter(records.metric_records(content).values()))[key])) for content in contents]
    if not sum(weights):
        if answers:
            log(WARNING, "fedcomp: all weights %r are 0; nothing is aggregated", key)
        return inner.aggregate_train(server_round, failed)
    trained = [cast(Update, answer.update) for answer in answers]
    mean = weighted_mean(list(zip(trained, weights, strict=True)), published)
    metric_key, metrics = next(iter(records.metric_records(contents[0]).items()))
    merged = RecordDict(
        {
            answers[0].key: to_record(mean),
            metric_key: MetricRecord(dict(metrics) | {key: sum(weights)}),
        }
    )
    log(INFO, "fedcomp: %d updates are merged into one result", len(answers))
    reply = make_message(answers[0].message.metadata, merged)
    arrays, _ = inner.aggregate_train(server_round, [reply, *failed])
    return arrays, aggregate_metricrecords(contents, key)
