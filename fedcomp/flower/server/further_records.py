"""The array records in messages next to the model: those with a compressor of their own, and those that travel as they are."""

from collections import Counter
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedcomp.compressor import Compressor
from fedcomp.core import listed
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.flower import records
from fedcomp.flower.compat import log, record_to_bytes
from fedcomp.flower.server.message_kind import MessageKind
from fedcomp.methods import METHODS, auto
from fedcomp.sync import Traffic, decode_record
from fedcomp.wire import Layout, codec_id

MAX_KEYS_LOGGED = 8
"""The most keys of records in one log line."""


class FurtherRecords:
    """The compressors of further records of training replies, such as SCAFFOLD's control variates, by key.

    Training messages name them, and replies are decoded.

    Raises `ValueError` for a key or a compressor that cannot be used.
    """

    def __init__(self, compressors: Mapping[str, Compressor] | None = None) -> None:
        if compressors is not None and not isinstance(compressors, Mapping):
            raise ValueError(f"records is {compressors!r}; compressors by key are needed, as {{'control': stc()}}")
        self.compressors = dict(compressors or {})
        for key, compressor in self.compressors.items():
            if not isinstance(key, str) or not key:
                raise ValueError(f"a key of records is {key!r}; the key of an ArrayRecord in replies is needed")
            if not isinstance(compressor, Compressor) or compressor == auto():
                raise ValueError(
                    f"the compressor of record {key!r} is {compressor}; name a method such as fedcomp.stc()"
                )
            codec_id(compressor.entropy)  # raises for a code without a number
            no_uplink = compressor.name in METHODS and not METHODS.about(compressor.name).uplink
            if no_uplink or compressor.memory.incremental:
                raise ValueError(f"{compressor} does not work for record {key!r}: it must send whole records of a node")
        self._config = ConfigRecord({key: str(compressor) for key, compressor in self.compressors.items()})
        self._size = len(record_to_bytes(RecordDict({records.RECORD_UPLINKS: self._config})))
        self._awaited = set(self.compressors)  # keys that were in no message and no reply yet

    def ask(self, message: Message) -> int:
        """Name the compressors in a training message that the model is packed in; return the bytes that this adds."""
        if not self.compressors:
            return 0
        if (packed := records.packed(message.content)) is not None and packed[0] in self.compressors:
            raise ValueError(
                f"records names {packed[0]!r}, which is the model; its compressors are uplink and downlink"
            )
        self._awaited -= message.content.keys()
        message.content[records.RECORD_UPLINKS] = self._config
        return self._size

    def check_keys(self, server_round: int, replies: Iterable[records.Contents]) -> None:
        """Log the keys that no message and none of these `replies`, the first with updates, has as one of an ArrayRecord."""
        if not self._awaited:
            return
        held = {key for reply in replies for key in (*reply.dense, *reply.compressed)}
        text = "fedcomp: round %d: no reply holds the ArrayRecord %r that records names; beside the model, they hold %s"
        for key in sorted(self._awaited - held):
            log(WARNING, text, server_round, key, listed(sorted(map(repr, held)), MAX_KEYS_LOGGED) or "none")
        self._awaited.clear()

    def decode(self, compressed: Mapping[str, Array], number: int, model: Layout) -> tuple[dict[str, ArrayRecord], int]:
        """Return the `compressed` records of the answer to message `number` as ordinary ones, by key, and their plain bytes.

        Raises `FedcompError` for damaged ones, and for keys that have no compressor.
        """
        decoded: dict[str, ArrayRecord] = {}
        size = 0
        for key, array in compressed.items():
            if key not in self.compressors:
                raise CorruptError(f"the record {key!r} is compressed; the message named no compressor for it")
            try:
                arrays = decode_record(array.data, number, model)
            except FedcompError as error:
                raise type(error)(f"the record {key!r}: {error}") from error
            decoded[key] = records.model_record(arrays)
            size += records.dense_size(decoded[key])
        return decoded, size


class DenseRecords:
    """Counts the bytes of records that are not compressed, and logs each record in the first round in which it occurs.

    `total_bytes` is their sum over all messages.
    """

    def __init__(self) -> None:
        self.total_bytes = 0
        self._sizes: Counter[tuple[MessageKind, str]] = Counter()
        self._logged: set[tuple[MessageKind, str]] = set()

    def add(self, kind: MessageKind, sizes: Mapping[str, int]) -> None:
        """Count the records of one message; `sizes` are their bytes by key."""
        for key, size in sizes.items():
            self._sizes[kind, key] += size
            self.total_bytes += size

    def log(self, traffic: Traffic, server_round: int) -> None:
        """Log the records that occur for the first time, with their share of the `traffic` of their direction in this round."""
        for (kind, key), size in self._sizes.items():
            if size and (kind, key) not in self._logged:
                direction, total = (
                    ("uplink", traffic.uplink_bytes) if kind.is_uplink else ("downlink", traffic.downlink_bytes)
                )
                text = "fedcomp: round %d: the record %r of %s is not compressed: %d bytes, %.0f %% of the %s"
                log(INFO, text, server_round, key, kind.value, size, 100 * size / max(size, total), direction)
                self._logged.add((kind, key))
        self._sizes.clear()
