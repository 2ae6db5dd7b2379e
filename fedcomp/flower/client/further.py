"""The further records of a reply that the server wants compressed: one that cannot be costs nothing but itself."""

from logging import INFO, WARNING

from flwr.app import RecordDict

from fedcomp.errors import DivergedError
from fedcomp.flower import records
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.trained import Asked
from fedcomp.flower.compat import log
from fedcomp.sync import RecordSender, derive_seed, why_uncompressed


def with_packed_records(
    state: ClientState, content: RecordDict, key: str, asked: Asked, logged: set[str]
) -> RecordDict:
    """Return `content` with its records compressed that have a compressor in `asked`; `key` is that of the model.

    One that no compressor takes, such as an empty one or one of integers, stays as it is.  One with NaN or infinity is left
    out: it would spoil all others.  The log says both, the first once for each text in `logged`.
    """
    content, model = content.copy(), state.subscriber.held
    for name, record in records.array_records(content).items():
        if name == key or name not in asked.uplinks:
            continue
        try:
            arrays = records.to_arrays(record)
            reason = why_uncompressed(arrays, model.layout)
        except ValueError as error:  # an array that Flower cannot read either
            arrays, reason = {}, str(error)
        if reason:
            text = f"fedcomp: the record {name!r} of the reply travels as it is: {reason}"
            if text not in logged:
                logged.add(text)
                log(INFO, "%s", text)
            continue
        sender = state.senders.get(name) or RecordSender()
        seed = derive_seed(asked.request.seed, asked.identity, *name.encode())
        try:
            data = sender.encode(arrays, asked.uplinks[name], model, asked.request.number, seed)
        except DivergedError as error:
            log(WARNING, "fedcomp: the record %r is left out of the reply, because it cannot be sent: %s", name, error)
            del content[name]
            continue
        state.senders[name] = sender
        content[name] = records.pack(data, stype=records.RECORD_STYPE)
    return content
