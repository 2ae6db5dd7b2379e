"""An array that is held is an Array to everybody else: over the wire, in a comparison, and where a field of it is set."""

import copy
import pickle

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedcomp.flower import to_record
from fedcomp.flower.lazy_array import LazyArray

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_it_becomes_bytes_when_they_are_asked_for_and_its_numpy_is_the_callers_own() -> None:
    held = LazyArray(VALUES)
    first = held.numpy()
    first[:] = 7
    assert held.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (held.dtype, held.shape, held.stype) == ("float32", (2, 3), "numpy.ndarray")
    assert Array(held.dtype, held.shape, held.stype, held.data).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_record_holds_copies() -> None:
    array = VALUES.copy()
    record = to_record({"w": array})
    array[:] = 0
    assert record["w"].numpy().tolist() == VALUES.tolist()


def test_it_arrives_over_flowers_wire_as_a_plain_array() -> None:
    content = RecordDict({"arrays": to_record({"w": VALUES})})
    plain = RecordDict({"arrays": ArrayRecord({"w": Array(VALUES)})})
    assert content.object_id == plain.object_id
    contents = {key: item.deflate() for key, item in get_all_nested_objects(content).items()}
    arrived = inflate_object_from_contents(content.object_id, contents)
    assert isinstance(arrived, RecordDict)
    array = arrived.array_records["arrays"]["w"]
    assert type(array) is Array
    np.testing.assert_array_equal(array.numpy(), VALUES)


def test_it_is_pickled_and_copied_as_a_plain_array() -> None:
    for twin in (pickle.loads(pickle.dumps(LazyArray(VALUES))), copy.deepcopy(LazyArray(VALUES))):  # noqa: S301
        assert type(twin) is Array
        np.testing.assert_array_equal(twin.numpy(), VALUES)


def test_it_equals_an_array_with_the_same_fields_both_ways() -> None:
    held, plain, other = LazyArray(VALUES), Array(VALUES), Array(VALUES + 1)
    assert held == plain
    assert plain == held
    assert held != other
    assert other != held
    assert held != "w"


def test_who_sets_its_bytes_gets_a_plain_array_with_them() -> None:
    held = LazyArray(VALUES)
    held.data = Array(VALUES + 1).data
    assert type(held) is Array
    np.testing.assert_array_equal(held.numpy(), VALUES + 1)
