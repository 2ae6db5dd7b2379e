"""The entries of a model's vector that a body holds: whole tensors, and of masked tensors the entries that may change.

A tensor that did not change is left out of the body, so that no method moves it.  A rotation, for example, spreads its error
over everything that it rotates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.backends import arithmetic
from fedcomp.core import Shapes
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices, InRanges, Masked, QuantizedVector, Ranges
from fedcomp.wire.layout import Layout

TensorFlags = NDArray[np.bool_]
"""A bool for each compressed tensor of a layout that has entries, in their order."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The `tensors` of a layout, bool (t,), without the entries that its masks keep fixed.

    `changeable` is what `Layout.changeable` returns: the entries that masks leave free, None without masks.
    """

    layout: Layout
    tensors: TensorFlags
    changeable: Indices | None = None

    @cached_property
    def is_whole(self) -> bool:
        """Whether no tensor is left out."""
        return bool(self.tensors.all())

    @cached_property
    def ranges(self) -> Ranges:
        """The selected parts of the vector, with neighbours joined into one part."""
        slices: list[slice] = []
        for (_, part), selected in zip(self.layout.filled, self.tensors, strict=True):
            if selected and slices and slices[-1].stop == part.start:
                slices[-1] = slice(slices[-1].start, part.stop)
            elif selected:
                slices.append(part)
        return Ranges(tuple(slices))

    @cached_property
    def indices(self) -> Indices | None:
        """The selected entries that masks leave free, int64 (k,), ascending; None without masks."""
        if self.changeable is None or self.is_whole:
            return self.changeable
        edges = [np.searchsorted(self.changeable, (part.start, part.stop)) for part in self.ranges.slices]
        parts = [self.changeable[start:stop] for start, stop in edges]
        return np.concatenate(parts) if parts else self.changeable[:0]

    @cached_property
    def n(self) -> int:
        """The number of selected entries."""
        if self.changeable is None and self.is_whole:
            return self.layout.n
        return self.ranges.size if self.indices is None else self.indices.size

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of the selected tensors; for a masked tensor, the number of its free entries."""
        if self.indices is None and self.is_whole:
            return self.layout.shapes
        selected = [each for each, kept in zip(self.layout.filled, self.tensors, strict=True) if kept]
        if self.indices is None:
            return tuple(tensor.number_shape for tensor, _ in selected)
        counts = np.diff(np.searchsorted(self.indices, [part.stop for _, part in selected]), prepend=0)
        return tuple((int(count),) for count in counts if count)

    def take(self, vector: Any) -> Any:
        """Return the selected entries of `vector` (n,), numpy or torch: `vector` itself if all are, otherwise a copy."""
        if self.indices is not None:
            return arithmetic.at(self.indices, vector)
        return vector if self.is_whole else arithmetic.join([vector[part] for part in self.ranges.slices])

    def put(self, entries: Any, vector: Any) -> Any:
        """Return `vector` (n,) with the selected entries set, and zero where masks fix entries; `vector` is overwritten."""
        if self.indices is not None:
            whole = np.zeros(self.layout.n, np.float32)
            whole[self.indices] = entries
            return whole
        if self.is_whole:
            return entries
        vector = arithmetic.as_like(vector, entries)
        for part, own in self.ranges.pairs():
            vector[part] = entries[own]
        return vector

    def indices_of(self, numbers: Indices) -> Indices:
        """Return the indices in the vector, int64 (k,), of the selected entries with these numbers."""
        return self.ranges.indices_of(numbers) if self.indices is None else self.indices[numbers]

    def numbers_of(self, indices: Indices) -> Indices:
        """Return the numbers, int64 (k,), that the entries at these indices have among the selected ones; all are selected."""
        return self.ranges.numbers_of(indices) if self.indices is None else np.searchsorted(self.indices, indices)

    def within(self, entries: QuantizedVector) -> QuantizedVector:
        """Return the vector (n,) of the layout that has the quantized `entries` of this selection."""
        if self.indices is not None:
            return Masked(self.layout.n, self.indices, entries)
        return entries if self.is_whole else InRanges(self.layout.n, self.ranges, entries)

    def to_bytes(self) -> bytes:
        """Return a bit for each tensor that has entries, the first one in the highest bit of the first byte."""
        return np.packbits(self.tensors).tobytes()


def changed_tensors(layout: Layout, vectors: Sequence[Any]) -> TensorFlags:
    """Return which tensors have an entry that is not zero in one of the `vectors` (n,), numpy or torch."""
    parts = [part for _, part in layout.filled]
    starts = np.array([part.start for part in parts], np.int64)
    changed = np.zeros(len(parts), np.bool_)
    for vector in vectors:
        changed |= arithmetic.at(starts, vector) != 0  # the first entry decides for most tensors
        rest = np.flatnonzero(~changed)
        changed[rest] = arithmetic.any_in(vector, [parts[index] for index in rest])
    return changed


def read_selection(body: bytes, layout: Layout, changeable: Indices | None = None) -> tuple[Selection, bytes]:
    """Return the selection that `Selection.to_bytes` wrote at the beginning of `body`, and the bytes behind it.

    Raises `FedcompError` for bits that do not fit the layout, and for a selection of all tensors, which needs no bits.
    """
    count = len(layout.filled)
    if len(body) < (size := -(-count // 8)):
        raise TruncatedError(f"{len(body)} bytes of body; a bit for each of {count} tensors takes {size}")
    bits = np.unpackbits(np.frombuffer(body, np.uint8, size)).astype(np.bool_)
    if bits[count:].any() or bits[:count].all():
        raise CorruptError(f"a body of some tensors that selects all of the {count} tensors, or more")
    return Selection(layout, bits[:count], changeable), body[size:]


def selected_entries(layout: Layout, tensors: TensorFlags) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of entries of each selected tensor."""
    for (tensor, _), selected in zip(layout.filled, tensors, strict=True):
        if selected:
            yield tensor.name, tensor.size
