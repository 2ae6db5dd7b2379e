"""The model in a reply: which record it is, under the names that the server gave its tensors."""

from flwr.app import ArrayRecord, Message, MessageType, RecordDict

from fedcomp.flower import records
from fedcomp.flower.lazy_array import record_of
from fedcomp.wire import Layout


def trained_model(message: Message, content: RecordDict, key: str, layout: Layout) -> tuple[str, ArrayRecord] | None:
    """Return the key and the record of the trained model in a reply's content; None for a reply that need not bring one.

    It is the record under the `key` of the model that was sent, or else the only one with tensors of the model.  If all names
    are unknown, as those of ``ArrayRecord(list_of_arrays)``, the record under `key` is still the model if its arrays fit the
    model's in order: plain Flower averages by position, too.  It comes back under the model's names.

    Raises `ValueError` if several records hold tensors of the model.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        return None
    arrays = records.array_records(content)
    names = {tensor.name for tensor in layout.tensors}
    fitting = [name for name, record in arrays.items() if names & record.keys()]
    if key in fitting:
        return key, arrays[key]
    if len(fitting) > 1:
        raise ValueError(f"the records {fitting} all hold tensors of the model; name the trained one {key!r}")
    if fitting:
        return fitting[0], arrays[fitting[0]]
    named = _by_position(arrays[key], layout) if key in arrays else None
    return None if named is None else (key, named)


def returned_model(message: Message, content: RecordDict, key: str, layout: Layout) -> tuple[str, ArrayRecord] | None:
    """Return the key and the record of a whole model in the reply to an evaluate message; None for a reply without one.

    It has the names, shapes and dtypes of the model that was sent.  If there are several, it is the one under the `key` of that
    model, or else the first one.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.EVALUATE:
        return None
    sent = {tensor.name: (tensor.shape, tensor.dtype) for tensor in layout.tensors if tensor.policy != "local"}
    arrays = records.array_records(content)
    for name in sorted(arrays, key=lambda name: name != key):
        if {each: (tuple(array.shape), array.dtype) for each, array in arrays[name].items()} == sent:
            return name, arrays[name]
    return None


def _by_position(record: ArrayRecord, layout: Layout) -> ArrayRecord | None:
    """Return the Arrays of `record` under the layout's names; None if their shapes or dtypes are not the model's in order.

    Any floating dtype fits any other.
    """
    found = [(tuple(array.shape), _family(array.dtype)) for array in record.values()]
    sent = tuple(tensor for tensor in layout.tensors if tensor.policy != "local")
    for tensors in (layout.tensors, sent):
        if found == [(tensor.shape, _family(tensor.dtype)) for tensor in tensors]:
            return record_of({tensor.name: array for tensor, array in zip(tensors, record.values(), strict=True)})
    return None


def _family(dtype: str) -> str:
    return "float" if "float" in dtype else dtype
