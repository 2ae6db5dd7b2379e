"""Records and messages in Flower's own stored and sent forms."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedcomp.flower.compat import (
    check_object,
    record_from_bytes,
    record_from_objects,
    record_to_bytes,
    record_to_objects,
    set_message_id,
    set_task_identity,
)


def _content() -> RecordDict:
    arrays = ArrayRecord({"w": Array(np.arange(3, dtype=np.float32))})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"loss": 0.5}), "config": ConfigRecord({"lr": 0.1})})


def test_a_record_returns_from_its_bytes_and_from_its_objects() -> None:
    content = _content()
    assert record_from_bytes(record_to_bytes(content)) == content
    objects = record_to_objects(content)
    assert content.object_id in objects
    assert record_from_objects(content.object_id, objects) == content


def test_objects_are_checked_against_their_ids() -> None:
    for object_id, data in record_to_objects(_content()).items():
        check_object(object_id, data)
        with pytest.raises(ValueError, match=object_id):
            check_object(object_id, data + b"0")
    arrays = ArrayRecord({"w": Array(np.zeros(1))})
    objects = record_to_objects(RecordDict({"arrays": arrays}))
    with pytest.raises(TypeError, match="a RecordDict is needed"):
        record_from_objects(arrays.object_id, objects)


def test_a_process_with_an_identity_makes_messages_whose_id_can_be_set() -> None:
    set_task_identity(5)
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    assert (message.metadata.run_id, message.metadata.src_node_id) == (5, 0)
    set_message_id(message, "7")
    assert message.metadata.message_id == "7"
    assert Message(RecordDict(), reply_to=message).metadata.reply_to_message_id == "7"
