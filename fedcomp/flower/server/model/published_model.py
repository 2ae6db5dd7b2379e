"""The published model as Flower's records, as the strategy and as everybody else sees it."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from logging import INFO

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import Arrays, listed
from fedcomp.errors import DivergedError
from fedcomp.flower import records
from fedcomp.flower.compat import log, nested_strategies, step_from, view_record
from fedcomp.flower.server.rounds.aggregation import Change
from fedcomp.flower.strategies.reply_use import starts_from_published
from fedcomp.flower.strategies.server_optimizer import ServerOptimizer
from fedcomp.sync import UNKNOWN_VERSION, Publisher, start_replica
from fedcomp.wire import BFLOAT16, Layout, Tensor, batchnorm_statistics, check_ties, layout_of, probable_ties

MAX_TIES_LOGGED = 3
"""The most groups of equal tensors in one log line."""
MAX_PLACES_LOGGED = 8
"""The most places in a list of arrays in one log line."""
MAX_DIFFERENCES_NAMED = 3
"""The most tensors that an error names where two models differ."""


@dataclass(slots=True)
class PublishedModel:
    """A publisher, the tensors `local` that never travel, and the records of the newest version.

    `inner` is what strategies compute with: bfloat16 as float32, no local tensors.  `public` is the whole model.
    """

    publisher: Publisher
    local: Arrays
    inner: ArrayRecord = field(init=False)
    public: ArrayRecord = field(init=False)
    _inner_arrays: dict[str, Array] = field(init=False, repr=False)
    _public_arrays: dict[str, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the records, and give training a random id if it has none; no result depends on it."""
        self.publisher.training_id = self.publisher.training_id or secrets.randbits(64) | 1
        self._renew()

    @classmethod
    def begin(
        cls,
        arrays: ArrayRecord,
        patterns: Iterable[str],
        tied: Iterable[Iterable[str]] = (),
        exact: Iterable[str] = (),
        *,
        shared_start: bool = False,
    ) -> "PublishedModel":
        """Publish `arrays` as version 0; names that match `patterns` are local, and each group of `tied` names is one tensor.

        Tensors that `exact` names are never compressed.  With `shared_start`, nodes can make that version themselves.

        Raises `ValueError` as `layout_of` does, and for tied tensors that differ.
        """
        plain = records.to_arrays(arrays)
        layout = layout_of(plain, patterns, tied, exact)
        check_ties(layout.tensors, plain)
        _log_probable_ties(probable_ties(layout.tensors, plain))
        _log_places(plain)
        local = {tensor.name: plain[tensor.name] for tensor in layout.tensors if tensor.policy == "local"}
        try:
            first = start_replica(layout, plain)
        except DivergedError as error:
            masks = [name for name, array in plain.items() if array.dtype.kind == "f" and (array == -np.inf).any()]
            hint = f"; a mask that all nodes have need not be sent: local={masks}" if masks else ""
            raise DivergedError(f"{error}{hint}") from error
        return cls(Publisher.begin(first, shared_start=shared_start), local)

    def publish(self, change: Change, compressor: Compressor, seed: int, strategy: Strategy) -> None:
        """Publish the next version, which `strategy` made; raises as `Publisher.publish` does."""
        if not starts_from_published(strategy):
            # The distance to such a model includes what was left out; from the memory it would be sent twice.
            self.publisher.forget(compressor)
        self.publisher.publish(*change, compressor, seed, keep=True)
        self._renew()
        self.lead(strategy)

    def lead(self, strategy: Strategy) -> None:
        """Let `strategy` make its next step from the published model, and move none of its exact tensors."""
        step_from(strategy, self.inner)
        exact = frozenset(tensor.name for tensor in self.publisher.replica.layout.exact_tensors)
        for _, each in nested_strategies(strategy):
            if isinstance(each, ServerOptimizer):
                each.exact = exact

    def check(self, arrays: ArrayRecord, *, begins: bool = False) -> None:
        """Raise `ValueError` if `arrays` are not the published model: nodes would train from a model they were never sent.

        `begins` says that they come in the first round of a training.
        """
        if arrays is self.public and _holds(arrays, self._public_arrays):
            return
        replica = self.publisher.replica
        change, exact = replica.layout.flatten(records.to_arrays(arrays), replica.vector)
        if change.any() or exact != replica.exact:
            more = ", or begin a new training with a new CompressedStrategy" if begins and replica.version else ""
            raise ValueError(
                f"the arrays are not the published model; pass on what aggregate_train returned, unchanged{more}"
            )

    def check_layout(
        self, arrays: ArrayRecord, patterns: Iterable[str], tied: Iterable[Iterable[str]], exact: Iterable[str]
    ) -> None:
        """Raise `ValueError` if `arrays` are of another model, whatever their values."""
        given, published = layout_of(records.to_arrays(arrays), patterns, tied, exact), self.publisher.replica.layout
        if given != published:
            found = _differences(given, published)
            raise ValueError(f"the arrays are of another model than the published one: {found}")

    def pack(self, message: Message, uplink: str, seed: int, sender: str) -> dict[str, int]:
        """Put the frames that the node of `message` needs in place of the model; return the amounts for the ledger.

        The node answers with the compressor of the text `uplink`, seeded by `seed`.  Raises `ValueError` if the message holds
        no record of the model; `sender` names the strategy in the error.
        """
        node, dense = message.metadata.dst_node_id, message.content
        arrays = records.array_records(dense)
        key = self._key_in(arrays)
        if key is None:
            raise ValueError(
                f"{sender} sends node {node} no record of the published model as it was passed to it; only that can be "
                "compressed"
            )
        held_nothing = self.publisher.nodes[node].version == UNKNOWN_VERSION
        request, route = self.publisher.message_to(node, uplink, seed)
        parts = replace(request, frames=()).to_bytes(), *request.frames
        message.content = dense.copy()  # a strategy may give several messages one content
        message.content[key] = records.pack(*parts)
        return {
            "downlink_bytes": sum(map(len, parts)) + sum(records.dense_sizes(message.content).values()),
            "first_model_bytes" if held_nothing else "catch_up_bytes": route.catch_up_bytes,
            "dense_downlink_bytes": sum(map(records.dense_size, arrays.values())),
            **route.bytes_by_kind(),
        }

    def _key_in(self, arrays: Mapping[str, ArrayRecord]) -> str | None:
        """Return the key of the published model: that of the record itself, or else of one with equal content."""
        for key, record in arrays.items():
            if record is self.inner and _holds(record, self._inner_arrays):
                return key
        for key, record in arrays.items():
            if records.are_equal(record, self._inner_arrays):
                return key
        return None

    def _renew(self) -> None:
        """Make the records of the newest version, in the memory of its vector; nothing changes that any more."""
        replica = self.publisher.replica
        arrays = replica.arrays(copy=False)
        self.inner = self.public = records.model_record(arrays)
        if self.local or any(array.dtype == BFLOAT16 for array in arrays.values()):
            whole = arrays | self.local
            self.public = view_record({tensor.name: whole[tensor.name] for tensor in replica.layout.tensors})
        self._inner_arrays, self._public_arrays = dict(self.inner), dict(self.public)


def _holds(record: ArrayRecord, arrays: Mapping[str, Array]) -> bool:
    """Return whether `record` holds these Arrays themselves, and no other."""
    return record.keys() == arrays.keys() and all(record[name] is array for name, array in arrays.items())


def _differences(given: Layout, published: Layout) -> str:
    """Return the first tensors that differ in two layouts, with what each layout says of them."""
    new, old = ({tensor.name: tensor for tensor in layout.tensors} for layout in (given, published))
    texts = [
        f"{name!r} is {_described(new.get(name))} instead of {_described(old.get(name))}"
        for name in old | new
        if new.get(name) != old.get(name)
    ]
    return listed(texts, MAX_DIFFERENCES_NAMED) or "the tensors are the same, in another order"


def _described(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{tensor.dtype} {tensor.shape} {tensor.policy_text}"


def _log_places(arrays: Arrays) -> None:
    """Log which vectors in a list of arrays, which have no names, travel exactly, because they are where statistics are."""
    found = batchnorm_statistics(arrays)
    places = [name for name in arrays if name in found and name.isdigit()]
    if places:
        text = "fedcomp: arrays %s of the list travel exactly: they are where a list has the statistics of BatchNorm"
        log(INFO, text, listed(places, MAX_PLACES_LOGGED))


def _log_probable_ties(groups: list[tuple[str, ...]]) -> None:
    """Log the names of tensors that hold the same values, and the setting for the case that they are one."""
    if groups:
        some, more = groups[:MAX_TIES_LOGGED], len(groups) - MAX_TIES_LOGGED
        equal = ", ".join(map(" = ".join, some)) + (f" and {more} groups more" if more > 0 else "")
        setting = f"CompressedStrategy(..., tied={some})"
        log(INFO, "fedcomp: tensors with the same values: %s; if these are one, send it once: %s", equal, setting)
