"""The replies of a round, as the strategy declares to use them (`ReplyUse`), and the change of the model that it makes of them.

Nothing is rounded to the model's dtype: a mean too small for a float16 weight is published once it has added up.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from logging import INFO, WARNING
from typing import cast

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.core import Vector
from fedcomp.errors import DivergedError
from fedcomp.flower import records
from fedcomp.flower.compat import (
    AVERAGING,
    aggregate_metricrecords,
    code_of,
    is_library_code,
    log,
    make_message,
    to_record,
    validate_message_reply_consistency,
)
from fedcomp.flower.names import match_names
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import (
    DifferenceRecord,
    ReplyDeclaration,
    ReplyUse,
    innermost,
    reply_use_of,
    restart,
    starts_from_published,
)
from fedcomp.sync import Publisher, Replica, dense_change, end_in_zero, weighted_mean

Change = tuple[Vector, bytes]
"""The change from the published vector to the next, float32 (n,), and the bytes of the next exact tensors."""
Aggregate = tuple[Change | None, MetricRecord | None]
"""The change and the metrics of a round; None for what the strategy does not give."""


def aggregate(
    inner: Strategy,
    server_round: int,
    replies: Sequence[ValidatedReply],
    failed: Sequence[Message],
    publisher: Publisher,
) -> Aggregate:
    """Return what `inner` makes of `replies` and of the error messages `failed`.

    If a node has lost the estimate whose increments are in the strategy's sum, the sum starts from zero, and the round has no
    result.  Raises `DivergedError` if the next model holds a number that cannot be sent.
    """
    if lost := [reply.node for reply in replies if reply.lost_its_estimate(publisher)]:
        text = "fedcomp: node %s has lost its estimate; all estimates start from zero, and this round is undone"
        log(WARNING, text, ", ".join(map(str, lost)))
        _restart(inner, publisher, lost)
        return None, None
    use, published = reply_use_of(inner), publisher.replica
    if use is ReplyUse.MEAN and all(reply.update is not None for reply in replies):
        return _aggregate_mean(inner, server_round, replies, failed, published)
    layout = published.layout
    messages: list[Message] = []
    for reply in replies:
        record: ArrayRecord | None = None
        if reply.update is not None:
            change, exact = dense_change(reply.update, layout)
            differs = use in (ReplyUse.DIFFERENCES, ReplyUse.INCREMENTS)
            record = DifferenceRecord() if differs else ArrayRecord()
            start = None if differs else published.vector
            record.update(to_record(layout.unflatten_float64(change, exact, start)))
        messages.append(reply.to_message(record))
    arrays, metrics = inner.aggregate_train(server_round, [*messages, *failed])
    return _change_to(arrays, inner, published), metrics


def counted(inner: Strategy, replies: Sequence[ValidatedReply]) -> list[ValidatedReply]:
    """Return the `replies` that count: in a mean, an update of weight 0 does not, and it goes back to its node."""
    averaging = innermost(inner)
    if reply_use_of(inner) is not ReplyUse.MEAN and code_of(averaging, "aggregate_train") not in AVERAGING:
        return list(replies)
    key = cast(FedAvg, averaging).weighted_by_key
    return [reply for reply in replies if weights_of([reply], key) != [0]]


def log_assumed_start(inner: Strategy) -> None:
    """Log what is assumed of a user's code in `inner` that declares nothing: it makes a step from the published model."""
    if _is_of_user(inner) and not isinstance(innermost(inner), ReplyDeclaration):
        text = (
            "fedcomp: %s.aggregate_train is assumed to make a step from the model of configure_train; if it continues a model "
            "of its own, such as an average over rounds, declare it: class %s(..., ReplyDeclaration): "
            "starts_from_published = False"
        )
        log(INFO, text, *[type(innermost(inner)).__name__] * 2)


def log_returned(inner: Strategy, server_round: int, replies: Sequence[ValidatedReply]) -> None:
    """Log that the updates in `replies` return to their nodes, because the code of a user in `inner` made no model of them."""
    count = sum(reply.update is not None for reply in replies)
    if count and _is_of_user(inner):
        text = (
            "fedcomp: round %d: %s.aggregate_train returned no model, so the %d updates of the round go back to their nodes, "
            "and are sent again; a strategy that keeps them for a later round must return the model of configure_train"
        )
        log(WARNING, text, server_round, type(innermost(inner)).__name__, count)


def _is_of_user(inner: Strategy) -> bool:
    """Return whether the code of a user, and not that of Flower or fedcomp, aggregates."""
    return not is_library_code(code_of(innermost(inner), "aggregate_train"))


@contextmanager
def undone_on_error(inner: Strategy, publisher: Publisher) -> Generator[None]:
    """Start the estimates of a strategy that sums increments from zero if the block raises.

    It may have summed increments that are not acknowledged, and that their nodes therefore take back.
    """
    try:
        yield
    except Exception:
        if reply_use_of(inner) is ReplyUse.INCREMENTS:
            _restart(inner, publisher)
        raise


def without_repeated_losses(replies: Sequence[ValidatedReply], publisher: Publisher) -> list[ValidatedReply]:
    """Return `replies` without those of nodes that lose their estimate again, soon after all estimates were restarted.

    The updates of such nodes are not acknowledged, so they return to their nodes.
    """
    kept: list[ValidatedReply] = []
    for reply in replies:
        if reply.lost_its_estimate(publisher) and not publisher.may_restart(reply.node):
            log(WARNING, "fedcomp: node %s has lost its estimate again; its updates wait for some rounds", reply.node)
        else:
            kept.append(reply)
    return kept


def _restart(inner: Strategy, publisher: Publisher, lost: Sequence[int] = ()) -> None:
    restart(inner)
    publisher.begin_epoch(lost)


def _aggregate_mean(
    inner: Strategy, server_round: int, replies: Sequence[ValidatedReply], failed: Sequence[Message], published: Replica
) -> Aggregate:
    """Return what `inner` makes of the weighted mean of the updates, which is summed sparsely, and all replies' metrics."""
    averaging = cast(FedAvg, aggregating(inner))
    key = averaging.weighted_by_key
    contents = [reply.content() for reply in replies]
    if contents:
        validate_message_reply_consistency(contents, key, check_arrayrecord=False)
    weights = weights_of(replies, key)
    if not sum(weights):
        if replies:
            log(WARNING, "fedcomp: all weights %r are 0; nothing is aggregated", key)
        _, metrics = averaging.aggregate_train(server_round, failed)
        return None, metrics
    layout = published.layout
    updates = [reply.update for reply in replies if reply.update is not None]
    change, exact = weighted_mean(list(zip(updates, weights, strict=True)), layout)
    end_in_zero(change, published.vector, len(updates))
    # Then the mean is the result, so it needs no copy.
    only_mean = code_of(averaging, "aggregate_train") is FedAvg.aggregate_train
    arrays = {} if only_mean else layout.unflatten_float64(change, exact, published.vector)
    metric_key, metrics = next(iter(replies[0].metrics.items()))
    merged = RecordDict(
        {replies[0].key: to_record(arrays), metric_key: MetricRecord(dict(metrics) | {key: sum(weights)})}
    )
    if not published.version:  # in the first round; the lines of all others look alike
        text = "fedcomp: %d updates are merged into one, here and in later rounds; Flower counts it as 1 result"
        log(INFO, text, len(replies))
    reply = make_message(replies[0].message.metadata, merged)
    result, _ = averaging.aggregate_train(server_round, [reply, *failed])
    metrics = aggregate_metricrecords(contents, key)
    if only_mean:
        return (change, layout.exact_bytes(exact)), metrics
    return _change_to(result, inner, published), metrics


def weights_of(replies: Sequence[ValidatedReply], key: str) -> list[float]:
    """Return the weight of each reply, which is the metric `key`; replies without it have none."""
    metrics = [record for reply in replies for record in list(reply.metrics.values())[:1]]
    return [float(cast(float, record[key])) for record in metrics if key in record]


def _change_to(arrays: ArrayRecord | None, inner: Strategy, published: Replica) -> Change | None:
    if arrays is None:
        return None
    rounded = starts_from_published(inner)  # a model made from scratch leads exactly where it says
    try:
        named = match_names(arrays, published.layout, from_node=False).record
        return published.layout.flatten(records.to_arrays(named), published.vector, rounded=rounded)
    except DivergedError:
        raise
    except ValueError as error:
        raise ValueError(f"{type(inner).__name__}.aggregate_train returned another model: {error}") from error
