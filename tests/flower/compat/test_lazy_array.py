"""A LazyArray is an Array to everybody else: over the wire, in a comparison, and once a field of it is set."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from fedcomp.flower import round_model, to_record, to_torch
from fedcomp.flower.compat import JoinedArray, LazyArray, record_from_objects, record_to_bytes, record_to_objects
from fedcomp.flower.records import are_equal, dense_size, to_arrays

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_its_numpy_array_is_a_copy_and_its_fields_are_those_of_an_array() -> None:
    lazy, plain = LazyArray(VALUES), Array(VALUES)
    first = lazy.numpy()
    first[:] = 7
    assert lazy.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (lazy.dtype, lazy.shape, lazy.stype, lazy.data) == ("float32", (2, 3), "numpy.ndarray", plain.data)


@pytest.mark.every_case
@pytest.mark.parametrize("values", [VALUES, np.float64(3), np.zeros(0, np.int8), np.asfortranarray(VALUES)])
def test_its_size_is_that_of_its_bytes_which_it_does_not_keep(values: np.ndarray) -> None:
    lazy, plain = LazyArray(np.asarray(values)), Array(np.asarray(values))
    assert dense_size(ArrayRecord({"w": plain})) == lazy.size == len(plain.data)
    assert lazy.data == plain.data
    assert lazy.data is not lazy.data
    lazy.data = b"12"
    assert (lazy.data, lazy.size) == (b"12", 2)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("change", "equal"),
    [
        (lambda arrays: arrays, True),
        (lambda arrays: {"b": arrays["b"], "w": arrays["w"]}, True),
        (lambda arrays: arrays | {"w": np.asfortranarray(arrays["w"])}, True),
        (lambda arrays: arrays | {"w": arrays["w"] * np.float32(1 + 2**-23)}, False),
        (lambda arrays: arrays | {"b": -arrays["b"]}, False),
        (lambda arrays: arrays | {"w": arrays["w"].view(np.int32)}, False),
        (lambda arrays: arrays | {"w": arrays["w"].T.reshape(3, 2)}, False),
        (lambda arrays: arrays | {"more": arrays["b"]}, False),
        (lambda arrays: {"w": arrays["w"]}, False),
    ],
    ids=["same", "order", "layout", "a bit", "sign of zero", "dtype", "shape", "more", "less"],
)
def test_records_are_equal_if_they_hold_the_same_bits_under_the_same_names(
    change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], equal: bool
) -> None:
    arrays = {"w": VALUES, "b": np.zeros(3, np.float32)}
    for record in (to_record(change(arrays)), ArrayRecord({name: Array(a) for name, a in change(arrays).items()})):
        assert are_equal(record, to_record(arrays)) is equal
        assert are_equal(to_record(arrays), record) is equal


def test_a_record_of_another_kind_equals_no_model() -> None:
    record = to_record({"w": VALUES})
    assert not are_equal(record, ArrayRecord({"w": Array("float32", (2, 3), "other", record["w"].data)}))
    assert not are_equal(*[ArrayRecord({"w": Array("float32", (2, 3), "other", record["w"].data)})] * 2)


def test_reading_the_arrays_of_a_record_copies_nothing() -> None:
    assert to_arrays({"w": LazyArray(VALUES)})["w"] is VALUES


def test_a_record_holds_copies() -> None:
    array = VALUES.copy()
    record = to_record({"w": array})
    array[:] = 0
    assert record["w"].numpy().tolist() == VALUES.tolist()


def test_a_tensor_is_copied_on_its_device_and_its_bytes_are_those_of_its_array() -> None:
    torch = pytest.importorskip("torch")
    other_device = pytest.importorskip("tests.other_device")
    with other_device.OtherDevice() as device:
        tensor = torch.from_numpy(VALUES.copy()).to(other_device.DEVICE)
        record = to_record({"w": tensor})
        tensor += 1
        assert device.to_host == 0
        assert record["w"].numpy().tolist() == VALUES.tolist()
        assert record["w"].data == Array(VALUES).data
        assert to_arrays(record)["w"].tolist() == VALUES.tolist()


@pytest.mark.every_case
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1 << 20,)])
def test_flower_sends_and_stores_it_as_a_plain_array(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).standard_normal(shape, np.float32) * np.ones(shape, np.float32)
    values = np.asarray(values)
    content = RecordDict({"arrays": to_record({"w": values})})
    plain = RecordDict({"arrays": ArrayRecord({"w": Array(values)})})
    assert content.object_id == plain.object_id
    assert record_to_objects(content) == record_to_objects(plain)
    assert record_to_bytes(content) == record_to_bytes(plain)
    array = record_from_objects(content.object_id, record_to_objects(content)).array_records["arrays"]["w"]
    assert type(array) is Array
    np.testing.assert_array_equal(array.numpy(), values)


def test_it_is_pickled_and_copied_as_a_plain_array() -> None:
    for twin in (pickle.loads(pickle.dumps(LazyArray(VALUES))), copy.deepcopy(LazyArray(VALUES))):  # noqa: S301
        assert type(twin) is Array
        np.testing.assert_array_equal(twin.numpy(), VALUES)


def test_it_equals_an_array_with_the_same_fields_both_ways() -> None:
    lazy, plain, other = LazyArray(VALUES), Array(VALUES), Array(VALUES + 1)
    assert lazy == plain
    assert plain == lazy
    assert lazy != other
    assert other != lazy
    assert lazy != "w"


def test_setting_its_bytes_replaces_its_values() -> None:
    lazy, new = LazyArray(VALUES), Array(VALUES + 1)
    before = RecordDict({"arrays": ArrayRecord({"w": lazy})}).object_id
    lazy.data = new.data
    assert lazy.data == new.data
    assert lazy.object_id == new.object_id
    assert RecordDict({"arrays": ArrayRecord({"w": lazy})}).object_id != before
    np.testing.assert_array_equal(lazy.numpy(), VALUES + 1)
    np.testing.assert_array_equal(to_arrays({"w": lazy})["w"], VALUES + 1)


def test_setting_its_serialisation_type_makes_numpy_refuse_it() -> None:
    lazy = LazyArray(VALUES)
    lazy.stype = "other/1"
    assert lazy.data == Array(VALUES).data
    with pytest.raises(TypeError, match="other/1"):
        lazy.numpy()


def test_joined_bytes_are_those_of_a_plain_array_to_everybody_else() -> None:
    head, shared = b"head", b"shared"
    joined, plain = JoinedArray("some.type", head, shared), Array("uint8", (10,), "some.type", b"headshared")
    assert (joined.dtype, joined.shape, joined.stype, joined.data) == ("uint8", (10,), "some.type", b"headshared")
    assert joined == plain
    assert plain == joined
    for copied in (pickle.loads(pickle.dumps(joined)), copy.deepcopy(joined)):  # noqa: S301
        assert type(copied) is Array
        assert copied == plain
    assert joined.deflate() == plain.deflate()
    assert joined.object_id == plain.object_id
    content, same = (RecordDict({"r": ArrayRecord({"a": array})}) for array in (joined, plain))
    assert record_to_bytes(content) == record_to_bytes(same)
    joined.data = b"other"
    assert joined.data == b"other"


class Linear:
    """Has a state dict, as a module of torch has."""

    def state_dict(self) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (Linear(), "a Linear is no mapping; arrays by their names are needed: its .state_dict()"),
        ([VALUES], "a list is no mapping; arrays by their names are needed"),
        ({"a": VALUES, "b": None}, "'b' is None; a numpy array or a torch tensor of numbers is needed"),
        ({"a": [{}]}, "'a' is of type list, which holds objects; a numpy array or a torch tensor of numbers is needed"),
        (RecordDict(), "a RecordDict holds records; one of them is needed, or arrays by their names"),
    ],
)
@pytest.mark.parametrize("make", [to_record, round_model])
def test_what_is_no_arrays_by_name_is_one_sentence(make: Callable[[Any], object], arrays: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(arrays)


@pytest.mark.parametrize("record", [{}, RecordDict(), Linear()])
def test_only_an_array_record_becomes_tensors(record: Any) -> None:
    with pytest.raises(ValueError, match=f"^{type(record).__name__} is no ArrayRecord"):
        to_torch(record)
