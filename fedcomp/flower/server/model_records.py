"""The published model as Flower's records, as the strategy and as everybody else sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvgM, Strategy
from numpy.typing import NDArray

from fedcomp.flower import records
from fedcomp.flower.lazy_array import to_record
from fedcomp.sync import Replica
from fedcomp.wire import BFLOAT16, bfloat16_to_float32


@dataclass(frozen=True, slots=True)
class ModelRecords:
    """`inner` is what strategies compute with: bfloat16 as float32, no local tensors.  `public` is the whole model."""

    inner: ArrayRecord
    public: ArrayRecord

    @classmethod
    def of(cls, replica: Replica, local: Mapping[str, NDArray[Any]]) -> "ModelRecords":
        """Return the records of `replica`, with `local` as the tensors that never travel."""
        arrays = replica.arrays()
        plain = {name: bfloat16_to_float32(a) if a.dtype == BFLOAT16 else a for name, a in arrays.items()}
        inner = to_record(plain)
        if not local and all(plain[name] is array for name, array in arrays.items()):
            return cls(inner, inner)
        whole = arrays | dict(local)
        return cls(inner, to_record({tensor.name: whole[tensor.name] for tensor in replica.layout.tensors}))

    def check(self, arrays: ArrayRecord, replica: Replica) -> None:
        """Raise `ValueError` if `arrays` are not the published model: nodes would train from a model they were never sent."""
        if arrays is self.public:
            return
        change, exact = replica.layout.difference(records.to_arrays(arrays), replica.vector)
        if change.any() or exact != replica.exact:
            raise ValueError("the arrays are not the published model; pass on what aggregate_train returned")

    def key_in(self, content: Mapping[str, object], sender: str) -> str:
        """Return the key of the published model in the content of a message; raise `ValueError` if it is not there."""
        found = {key: record for key, record in content.items() if isinstance(record, ArrayRecord)}
        for key, record in found.items():
            if record is self.inner:
                return key
        for key, record in found.items():
            if record.keys() == self.inner.keys() and all(record[n].data == self.inner[n].data for n in self.inner):
                return key
        raise ValueError(f"{sender} sends no record of the published model; only that can be compressed")


def follow_published(strategy: Strategy, published: ArrayRecord) -> None:
    """Let FedAvgM, alone or wrapped, step from the published model: it would continue from the model that it made."""
    if isinstance(strategy, FedAvgM) and strategy.current_arrays is not None:
        strategy.current_arrays = published
    for value in vars(strategy).values():
        if isinstance(value, Strategy):
            follow_published(value, published)
