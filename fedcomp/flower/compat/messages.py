"""Messages and records as Flower stores and sends them, and what only its own launcher or SuperLink sets in them."""

from collections.abc import Mapping

from flwr.app import Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity


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
