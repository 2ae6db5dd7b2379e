"""What a ClientApp may answer to a training message: rows for the table of what works and what is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedcomp.flower import to_record
from tests.flower.toy import Arrays

MODEL: Arrays = {
    "b.weight": np.zeros((3, 2), np.float32),
    "a.weight": np.full((3, 2), 100, np.float32),
    "steps": np.array([1, 2]),
    "scalar": np.array(2, np.float32),
}
"""Two tensors that only their names tell apart, a counter, and a tensor without a shape."""


@dataclass(frozen=True)
class ReplyCase:
    """A reply to the arrays of a message, and its content.

    It `counts` as if each tensor had grown by 1, or the run ends with an error that `says` why.
    """

    title: str
    content: Callable[[Arrays, Message, Context], RecordDict]
    says: str = ""

    @property
    def counts(self) -> bool:
        """Whether the update counts."""
        return not self.says


def record(arrays: dict[str, Any]) -> ArrayRecord:
    """Return arrays as a record that Flower made."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def grown(arrays: Arrays) -> Arrays:
    """Return the arrays, each grown by 1 in its dtype."""
    return {name: np.asarray(array + 1, array.dtype) for name, array in arrays.items()}


def reply(arrays: ArrayRecord, key: str = "arrays", **more: ArrayRecord | MetricRecord) -> RecordDict:
    """Return the content of a reply."""
    content: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {key: arrays}
    content["metrics"] = MetricRecord({"num-examples": 1})
    return RecordDict({**content, **more})


def _cast(dtype: str) -> Callable[[Arrays, Message, Context], RecordDict]:
    return lambda given, message, context: reply(record({n: a.astype(dtype) for n, a in grown(given).items()}))


def _in_place(given: Arrays, message: Message, context: Context) -> RecordDict:
    held = cast(ArrayRecord, message.content["arrays"])
    for name, array in grown(given).items():
        held[name] = Array(array)
    return reply(held)


def _fields_in_place(given: Arrays, message: Message, context: Context) -> RecordDict:
    held = cast(ArrayRecord, message.content["arrays"])
    for name, array in grown(given).items():
        held[name].data = Array(array).data
    return reply(held)


def _popped(given: Arrays, message: Message, context: Context) -> RecordDict:
    message.content.clear()
    return reply(record(grown(given)))


def _received_content(given: Arrays, message: Message, context: Context) -> RecordDict:
    content = message.content
    content["arrays"], content["metrics"] = record(grown(given)), MetricRecord({"num-examples": 1})
    return content


def _control_under_the_names_of_the_model(given: Arrays, message: Message, context: Context) -> RecordDict:
    wrapped = {f"module.{name}": array for name, array in sorted(grown(given).items())}
    return reply(record(wrapped), control=record({name: np.full_like(array, -7) for name, array in given.items()}))


def _in_context(given: Arrays, message: Message, context: Context) -> RecordDict:
    context.state["arrays"] = record(grown(given))
    return reply(cast(ArrayRecord, context.state["arrays"]))


REPLIES = [
    ReplyCase("a record of Flower", lambda given, *_: reply(record(grown(given)))),
    ReplyCase("a record of fedcomp", lambda given, *_: reply(to_record(grown(given)))),
    ReplyCase("a list of arrays", lambda given, *_: reply(ArrayRecord(list(grown(given).values())))),
    ReplyCase("another order", lambda given, *_: reply(record(dict(sorted(grown(given).items()))))),
    ReplyCase(
        "a prefix and another order",
        lambda given, *_: reply(record({f"module.{n}": a for n, a in sorted(grown(given).items())})),
    ),
    ReplyCase("another key", lambda given, *_: reply(record(grown(given)), "model")),
    ReplyCase(
        "another key and a prefix",
        lambda given, *_: reply(record({f"m/{n}": a for n, a in grown(given).items()}), "model"),
    ),
    ReplyCase("float64", _cast("f8")),
    ReplyCase("float16", _cast("f2")),
    ReplyCase("integers", _cast("i4")),
    ReplyCase("big-endian", _cast(">f4")),
    ReplyCase(
        "Fortran order", lambda given, *_: reply(record({n: np.array(a, order="F") for n, a in grown(given).items()}))
    ),
    ReplyCase(
        "strided views",
        lambda given, *_: reply(record({n: np.repeat(a, 2, 0)[::2] if a.ndim else a for n, a in grown(given).items()})),
    ),
    ReplyCase("the received record, changed", _in_place),
    ReplyCase("the received Arrays, changed", _fields_in_place),
    ReplyCase("a received message that was emptied", _popped),
    ReplyCase("the content of the received message", _received_content),
    ReplyCase("a record of the node's own state", _in_context),
    ReplyCase("a control variate under the names of the model", _control_under_the_names_of_the_model),
    ReplyCase(
        "another record with unknown names first",
        lambda given, *_: RecordDict({"aux": record({"x": np.ones(3)}), **reply(record(grown(given)))}),
    ),
    ReplyCase("complex numbers", _cast("c8"), "complex64"),
    ReplyCase("text", lambda given, *_: reply(record({n: np.full(a.shape, "x") for n, a in given.items()})), "Error"),
    ReplyCase(
        "(1,) for a tensor without a shape",
        lambda given, *_: reply(record(grown(given) | {"scalar": np.ones(1, np.float32)})),
        "shape (1,)",
    ),
    ReplyCase(
        "flat arrays", lambda given, *_: reply(record({n: a.ravel() for n, a in grown(given).items()})), "shape (6,)"
    ),
    ReplyCase(
        "a part",
        lambda given, *_: reply(record({"a.weight": given["a.weight"]})),
        "missing ['b.weight', 'steps', 'scalar']",
    ),
    ReplyCase("a tensor more", lambda given, *_: reply(record(grown(given) | {"c": np.ones(2)})), "unexpected ['c']"),
    ReplyCase(
        "a prefix that gives names twice",
        lambda given, *_: reply(record({f"m.{n}": a for n, a in grown(given).items()} | {"a.weight": np.ones(2)})),
        "unexpected ['m.b.weight'",
    ),
    ReplyCase(
        "no ArrayRecord", lambda given, *_: RecordDict({"metrics": MetricRecord({"num-examples": 1})}), "none of its"
    ),
    ReplyCase("an empty ArrayRecord", lambda given, *_: reply(ArrayRecord()), "missing ['b.weight'"),
    ReplyCase(
        "no weight", lambda given, *_: reply(record(grown(given)), metrics=MetricRecord({"n": 1})), "num-examples"
    ),
    ReplyCase(
        "two models under other keys",
        lambda given, *_: reply(record(grown(given)), "one", two=record(grown(given))),
        "name the trained one 'arrays'",
    ),
    ReplyCase(
        "a record of other names under the key of the model",
        lambda given, *_: reply(record({"x": np.ones(3)}), model=record(grown(given))),
        "unexpected ['x']",
    ),
]
"""The rows."""
