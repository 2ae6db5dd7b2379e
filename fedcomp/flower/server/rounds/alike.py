"""Replies that name their records and metrics differently, in the one form in which Flower's strategies can aggregate them."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from logging import WARNING
from typing import cast

from flwr.app import MetricRecord

from fedcomp.core import listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.participation import names_of
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply

Value = int | float | list[int] | list[float]
MAX_NAMES_LOGGED = 10
"""The most names of metrics in one log line."""


def with_one_key(replies: Sequence[ValidatedReply]) -> list[ValidatedReply]:
    """Return the replies with their models under the key that most of them use.

    One whose other records have that key already stays as it is.
    """
    common = _most_common([reply.key for reply in replies])
    return [
        reply if reply.key == common or reply.has(str(common)) else replace(reply, key=cast(str, common))
        for reply in replies
    ]


def with_common_metrics(replies: Sequence[ValidatedReply], weight_key: str | None) -> list[ValidatedReply]:
    """Return the replies, whose metrics now have the same names; one that cannot be brought to that is left out.

    A MetricRecord stays if more than half of the replies have it, and so does a metric, as a number or as a list of one length.
    A reply without the metric gets the mean of the others, weighted by the metric `weight_key`, which leaves the mean of all as
    it is.  Others are dropped, and the log names them.
    """
    if not replies:
        return []
    replies = _with_one_metric_key(replies)
    keys = _common_keys([reply.metrics.keys() for reply in replies])
    for key in sorted({key for reply in replies for key in reply.metrics} - keys):
        text = "fedcomp: the MetricRecord %r of %s is dropped, as most replies lack it"
        log(WARNING, text, key, names_of({reply.node for reply in replies if key in reply.metrics}))
    alike = [
        replace(reply, metrics={key: record for key, record in reply.metrics.items() if key in keys})
        for reply in replies
        if keys <= reply.metrics.keys()
    ]
    for key in keys:
        alike = _with_common_entries(alike, key, weight_key)
    return alike


def with_common_records(replies: Sequence[ValidatedReply]) -> list[ValidatedReply]:
    """Return the replies that have the ArrayRecords and metrics that most of them have."""
    structures = [_structure(reply) for reply in replies]
    common = _most_common(structures)
    return [reply for reply, structure in zip(replies, structures, strict=True) if structure == common]


def are_alike(replies: Sequence[ValidatedReply]) -> bool:
    """Return whether all replies have the same ArrayRecords and metrics."""
    return len({_structure(reply) for reply in replies}) < 2


def _structure(reply: ValidatedReply) -> Hashable:
    entries = {(key, name, _kind(value)) for key, record in reply.metrics.items() for name, value in record.items()}
    return reply.key, frozenset(reply.arrays), frozenset(reply.metrics), frozenset(entries)


def _kind(value: Value) -> int | None:
    """Return the length of a list; None for a number."""
    return len(value) if isinstance(value, list) else None


def _most_common(values: Sequence[Hashable]) -> Hashable:
    """Return the value that is there most often, of several the first one; None if there is none."""
    return max(Counter(values).items(), key=lambda item: item[1], default=(None, 0))[0]


def _with_one_metric_key(replies: Sequence[ValidatedReply]) -> list[ValidatedReply]:
    """Return the replies, the only MetricRecord of each under the key that most of them have."""
    if not all(len(reply.metrics) == 1 for reply in replies):
        return list(replies)
    common = cast(str, _most_common([key for reply in replies for key in reply.metrics]))
    return [
        reply if reply.has(common) else replace(reply, metrics={common: record})
        for reply in replies
        for record in reply.metrics.values()
    ]


def _common_keys(key_sets: Sequence[Collection[str]]) -> set[str]:
    """Return keys that more than half of the sets have together, the most frequent first; without any, those of one set."""
    common = set[str]()
    for key, _ in Counter(key for keys in key_sets for key in keys).most_common():
        if 2 * sum(common | {key} <= set(keys) for keys in key_sets) > len(key_sets):
            common.add(key)
    return common or set(cast(frozenset[str], _most_common([frozenset(keys) for keys in key_sets])))


def _with_common_entries(replies: Sequence[ValidatedReply], key: str, weight_key: str | None) -> list[ValidatedReply]:
    metrics = [reply.metrics[key] for reply in replies]
    kinds = Counter((name, _kind(value)) for record in metrics for name, value in record.items())
    if all(count == len(replies) for count in kinds.values()):
        return list(replies)
    common = {name: kind for (name, kind), count in kinds.items() if 2 * count > len(replies)}
    weighed = weight_key in common
    alike = [(r, m) for r, m in zip(replies, metrics, strict=True) if not weighed or weight_key in m]
    weights = [cast(float, record[weight_key]) if weighed and weight_key else 1.0 for _, record in alike]
    having = {
        name: [(w, m[name]) for w, (_, m) in zip(weights, alike, strict=True) if name in m and _kind(m[name]) == kind]
        for name, kind in common.items()
    }
    means = {name: _mean(held) for name, held in having.items() if len(held) < len(alike)}
    changed: list[ValidatedReply] = []
    for reply, record in alike:
        values = {n: record[n] if n in record and _kind(record[n]) == kind else means[n] for n, kind in common.items()}
        changed.append(replace(reply, metrics={**reply.metrics, key: MetricRecord(values)}))
    _log({name for name, _ in kinds} - common.keys(), means.keys(), [reply.node for reply, _ in alike])
    return changed


def _mean(weighted: Sequence[tuple[float, Value]]) -> float | list[float]:
    total = sum(weight for weight, _ in weighted)
    shares = [weight / total if total else 1 / len(weighted) for weight, _ in weighted]
    values = [value for _, value in weighted]
    if isinstance(values[0], list):
        columns = zip(*cast(list[list[float]], values), strict=True)
        return [sum(share * value for share, value in zip(shares, column, strict=True)) for column in columns]
    return sum(share * value for share, value in zip(shares, cast(list[float], values), strict=True))


def _log(dropped: Collection[str], filled: Collection[str], nodes: Collection[int]) -> None:
    found = [
        (dropped, "dropped, as most replies lack it"),
        (filled, "the mean of the replies that have it, in the others"),
    ]
    news = [
        f"{listed([repr(name) for name in sorted(names)], MAX_NAMES_LOGGED)}: {what}" for names, what in found if names
    ]
    log(WARNING, "fedcomp: the metrics of %s differ; %s", names_of(set(nodes)), "; ".join(news))
