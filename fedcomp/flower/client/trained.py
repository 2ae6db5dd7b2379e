"""What a message asks of a node, and the model in its reply: which record it is, under the names that the server gave."""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import INFO
from zlib import crc32

from flwr.app import ArrayRecord, Context, Message, MessageType

from fedcomp.flower.compat import log
from fedcomp.flower.names import match_names
from fedcomp.wire import Layout, ServerMessage


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that the node could follow.

    Attributes:
        request: Its header.
        key: The key of the model in it.
        further: The keys of the other ArrayRecords in it.
        uplinks: Key -> text of the compressor of each further record that is to be compressed.
        max_norm: The largest l2 norm of the update; None for no bound.
        identity: The number that seeds what the node draws (`identity_of`).
        decode_seconds: The time that the frames took.
    """

    request: ServerMessage
    key: str
    further: frozenset[str]
    uplinks: dict[str, str]
    max_norm: float | None
    identity: int
    decode_seconds: float


def identity_of(context: Context) -> int:
    """Return the number that seeds what a node draws: its ``partition-id``, or the CRC-32 of one that is no number.

    Without a ``partition-id``, it is the node's id.
    """
    named = context.node_config.get("partition-id", context.node_id)
    try:
        return int(named)
    except (ValueError, OverflowError):  # a text; inf
        return crc32(str(named).encode())


def trained_model(
    message: Message, arrays: Mapping[str, ArrayRecord], asked: Asked, layout: Layout, logged: set[str]
) -> tuple[str, ArrayRecord] | None:
    """Return the key and the record of the trained model in a reply with `arrays`; None for a reply that need not bring one.

    It is the record under the key of the model that was sent.  Without one, it is the only record with tensors of the model,
    or the only record of all.  A record with a compressor of its own never is, nor one under the key of another record of
    the message.  The model comes back under the names that were sent: `match_names` matches other ones, and one line of the
    log, which is then in `logged`, says how.

    Raises `ValueError` for names that do not match, and if several records hold tensors of the model.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        return None
    others = asked.further | asked.uplinks.keys()
    key, arrays = asked.key, {name: record for name, record in arrays.items() if name not in others}
    names = {tensor.name for tensor in layout.tensors}
    fitting = [name for name, record in arrays.items() if names & record.keys()]
    if key in arrays:
        match = match_names(arrays[key], layout)
    elif len(fitting) > 1:
        raise ValueError(f"the records {fitting} all hold tensors of the model; name the trained one {key!r}")
    elif fitting:
        key, match = fitting[0], match_names(arrays[fitting[0]], layout)
    elif len(arrays) == 1:
        ((key, record),) = arrays.items()
        try:
            match = match_names(record, layout)
        except ValueError:
            return None  # it need not be a model
    else:
        return None
    if match.how and match.how not in logged:
        logged.add(match.how)
        log(INFO, "fedcomp: the tensors of the reply have other names than the model's: matched %s", match.how)
    return key, match.record


def returned_model(
    message: Message, arrays: Mapping[str, ArrayRecord], key: str, layout: Layout
) -> tuple[str, ArrayRecord] | None:
    """Return the key and the record of a whole model among the `arrays` of a reply to an evaluate message; None without one.

    It has the names, shapes and dtypes of the model that was sent.  If there are several, it is the one under the `key` of that
    model, or else the first one.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.EVALUATE:
        return None
    sent = {tensor.name: (tensor.shape, tensor.dtype) for tensor in layout.tensors if tensor.policy != "local"}
    for name in sorted(arrays, key=lambda name: name != key):
        if {each: (tuple(array.shape), array.dtype) for each, array in arrays[name].items()} == sent:
            return name, arrays[name]
    return None
