"""Everything fedcomp uses of Flower that Flower does not promise to keep, checked against flwr 1.40 to 1.42.

Flower promises what ``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp`` and ``flwr.serverapp.strategy`` export.  Everything
else is imported, or worked around, in this file and nowhere else, so that a new Flower release is checked in one place.
"""

from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.app.message.message import make_message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode, SType
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import (
    aggregate_arrayrecords,
    aggregate_metricrecords,
    validate_message_reply_consistency,
)
from flwr.supercore import log
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = [
    "KEY_CLIPPING_NORM",
    "AggregationError",
    "ClientAppCallable",
    "ErrorCode",
    "Run",
    "SType",
    "aggregate_arrayrecords",
    "aggregate_metricrecords",
    "check_object",
    "content_replies",
    "log",
    "make_message",
    "parse_config_args",
    "record_from_bytes",
    "record_from_objects",
    "record_to_bytes",
    "record_to_objects",
    "set_message_id",
    "set_task_identity",
    "validate_message_reply_consistency",
]


def content_replies(strategy: FedAvg, replies: Iterable[Message]) -> list[Message]:
    """Return the training replies that carry no error, after Flower's own log lines and consistency checks."""
    replies = list(replies)
    valid, _ = strategy._check_and_log_replies(replies, is_train=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return valid


def set_task_identity(run_id: int) -> None:
    """Let this process make messages, as task 1 of the server in run `run_id`.

    Flower reads the identity from class attributes, which its own launcher sets; a grid in this process has no launcher.
    """
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 0, 1


def set_message_id(message: Message, message_id: str) -> None:
    """Give `message` its id, which has no setter: a SuperLink gives it when the message arrives there."""
    message.metadata.__dict__["_message_id"] = message_id


def record_to_bytes(record: RecordDict) -> bytes:
    """Return the protocol buffer in which Flower stores `record`."""
    data: bytes = recorddict_to_proto(record).SerializeToString()
    return data


def record_from_bytes(data: bytes) -> RecordDict:
    """Return the record in a protocol buffer that `record_to_bytes` wrote."""
    return recorddict_from_proto(RecordDictProto.FromString(data))


def record_to_objects(record: RecordDict) -> dict[str, bytes]:
    """Return the objects that Flower sends for `record`, by object id."""
    return {object_id: item.deflate() for object_id, item in get_all_nested_objects(record).items()}


def record_from_objects(object_id: str, objects: Mapping[str, bytes]) -> RecordDict:
    """Return the record with the id `object_id` from the objects that `record_to_objects` made."""
    record = inflate_object_from_contents(object_id, dict(objects))
    if not isinstance(record, RecordDict):
        raise TypeError(f"the object {object_id} is a {type(record).__name__}; a RecordDict is needed")
    return record


def check_object(object_id: str, data: bytes) -> None:
    """Raise `ValueError` unless `object_id` is the id of the object in `data`, as a SuperLink does."""
    if get_object_id(data) != object_id:
        raise ValueError(f"the object {object_id} holds the bytes of another one")
