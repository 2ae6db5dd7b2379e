"""Mods of the app's own, as in custom-mods: each must see plain arrays, as it does without fedcomp."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from tests.adoption import batch_norm
from tests.adoption.quickstart import Quickstart


def model_in(content: RecordDict) -> ArrayRecord:
    """Return the only array record of a message; raise `ValueError` if it holds no weights of the network."""
    (record,) = content.array_records.values()
    if record["0.weight"].numpy().shape != (8, 1, 3, 3):
        raise ValueError("no weights")
    return record


def norm_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Add to the reply's metrics how far training has moved the first weights."""
    before = model_in(message.content)["0.weight"].numpy()
    reply = call_next(message, context)
    after = model_in(reply.content)["0.weight"].numpy()
    metrics = next(iter(reply.content.metric_records.values()))
    metrics["moved"] = float(((after - before) ** 2).sum() ** 0.5)
    return reply


def counting_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Count the messages of a node in its state."""
    seen = context.state.metric_records.get("seen", MetricRecord({"messages": 0}))
    context.state["seen"] = MetricRecord({"messages": int(str(seen["messages"])) + 1})
    return call_next(message, context)


QUICKSTART = Quickstart(
    initial=batch_norm.QUICKSTART.initial,
    train=batch_norm.train,
    score=batch_norm.QUICKSTART.score,
    mods=(norm_mod, counting_mod),
    rounds=16,
)
