"""The sum of a sender's memory and its update, as quantizers read it: block by block, never as a whole."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from fedcomp.core.context import EncodeContext, Hint
from fedcomp.core.types import Vector, is_numpy, on_host
from fedcomp.errors import NonFiniteError

BLOCK_ENTRIES = 1 << 16
"""Entries worked on at a time: a block and its temporaries stay in the processor's cache."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_TENSORS = 1 << 16
"""Entropy codes refuse vectors of more tensors.  Reading a sum of more tensors therefore never changes the memory."""


def block_slices(n: int, size: int = BLOCK_ENTRIES) -> Iterator[slice]:
    """Yield consecutive slices of `n` entries, each of `size` entries; the last one may be shorter."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


@dataclass(frozen=True, slots=True)
class CommitRule:
    """How a memory moves on from one update to the next; the memory is among the parts of the sum.

    `apply` takes slices of all parts, of the same entries.  It updates the slices of the memory in place, and returns the
    same entries of the sum.  `weights` are the weights of the parts in the sum afterwards, None for a part that is no longer
    in it.
    """

    apply: Callable[..., Any]
    weights: tuple[float | None, ...]


class CompensatedUpdate:
    """A weighted sum of float32 vectors of one length, the sender's memory and its update, computed block by block.

    When memory changes: `commit` applies the `commit_rule` to all entries, once; by default the sum moves into the first part.
    Reading never changes the memory, except that the first reading of an `in_place` sum also commits it (saves one pass).
    `in_place` is for encoders that cannot fail: the caller promises finite entries.  A sum of more than `MAX_TENSORS` tensors
    is never read in place.

    A `bounded` sum whose parts are finite saturates at the largest float32; any other sum raises `NonFiniteError` there.
    `context` is what the sender knows in addition, and `hint` what its memory tells the quantizer.  `origin` is the index of
    the first entry in a longer vector, for error messages.
    """

    __slots__ = ("bounded", "commit_rule", "committed", "context", "hint", "in_place", "origin", "parts", "weights")

    def __init__(
        self,
        *parts: Any,
        weights: Sequence[float | None] = (),
        commit_rule: CommitRule | None = None,
        in_place: bool = False,
        bounded: bool = False,
        context: EncodeContext = EncodeContext(),
        hint: Hint | None = None,
        origin: int = 0,
    ) -> None:
        """Take numpy vectors, or torch tensors on one device.  All `weights` are 1 by default; None leaves a part out."""
        self.parts: tuple[Any, ...] = parts
        self.weights = tuple(weights) or (1.0,) * len(parts)
        self.commit_rule = commit_rule or move_into_first([weight or 0.0 for weight in self.weights])
        self.in_place = in_place and len(parts) > 1 and len(context.shapes) <= MAX_TENSORS
        self.bounded, self.context, self.hint, self.origin = bounded, context, hint, origin
        self.committed = False

    @property
    def n(self) -> int:
        """Entries of each part and of the sum."""
        return int(self.parts[0].shape[0])

    @property
    def terms(self) -> list[tuple[Any, float]]:
        """The parts that count, each with its weight."""
        pairs = zip(self.parts, self.weights, strict=True)
        return [(part, weight) for part, weight in pairs if weight is not None]

    @property
    def on_host(self) -> bool:
        """Whether the parts are numpy vectors."""
        return is_numpy(self.parts[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor that has any; one tensor where no shapes are known."""
        return tuple(size for size in map(math.prod, self.context.shapes or ((self.n,),)) if size)

    @property
    def block_size(self) -> int:
        """Entries of a block but the last: a small part of the vector, and small enough for the cache."""
        return min(self.n, BLOCK_ENTRIES if self.n >= 64 * BLOCK_ENTRIES else BLOCK_ENTRIES // 2)

    def blocks(self, size: int = 0) -> Iterator[tuple[int, Vector]]:
        """Yield (start, entries) in order, `size` entries at a time.  A block is read-only, and valid until the next block.

        Raises `NonFiniteError` at a block that holds NaN or infinity.
        """
        size = min(size or self.block_size, self.n)
        if self.in_place and not self.committed:
            yield from self._settling(size)
            return
        terms = self.terms
        weights = [weight for _, weight in terms]
        plain = weights == [1.0]
        buffer = np.empty(0 if plain else size, np.float32)
        product = np.empty(size if any(weight != 1 for weight in weights[1:]) else 0, np.float32)
        for start in range(0, self.n, size):
            parts = [on_host(part[start : start + size]) for part, _ in terms]
            with np.errstate(over="ignore", invalid="ignore"):
                block = parts[0] if plain else _weighted_sum(parts, weights, buffer[: parts[0].size], product)
            if not (self.in_place and plain) and not np.isfinite(block).all():
                block = self._bound(block, parts, start)
            yield start, block

    def sample(self, begin: int, step: int, run: int) -> Vector:
        """Return every `step`-th run of `run` neighbours, from run number `begin` on, as one vector.  NaN is not refused."""
        cut = self.n // run * run
        runs: list[Vector] = [part[:cut].reshape(-1, run)[begin::step] for part, _ in self.terms]
        weights = [weight for _, weight in self.terms]
        with np.errstate(over="ignore", invalid="ignore"):
            if all(weight == 1 for weight in weights):
                return np.asarray(np.add.reduce(runs)).ravel()
            buffers = np.empty((2, *runs[0].shape), np.float32)
            return _weighted_sum(runs, weights, buffers[0], buffers[1].ravel()).ravel()

    def tensors(self) -> Iterator[tuple[int, "CompensatedUpdate"]]:
        """Yield (start, sum) of each tensor behind the vector that has entries; read one sum before you ask for the next."""
        tensors = (self._slice(*edges) for edges in pairwise(accumulate(self.sizes, initial=0)))
        current: list[CompensatedUpdate] = []
        try:
            for tensor in tensors:
                current = [tensor]
                yield tensor.origin - self.origin, tensor
                if self.in_place:
                    tensor.commit()
        finally:  # also where the reader stops early
            if self.in_place:
                for tensor in chain(current, tensors):
                    tensor.commit()
                self._mark_committed()

    def commit(self) -> tuple[Any, ...]:
        """Update the memory, unless reading has done so already; return the parts."""
        if not self.committed:
            with np.errstate(over="ignore", invalid="ignore"):
                for _ in self._settling(BLOCK_ENTRIES if self.on_host else self.n):
                    pass
        return self.parts

    def scaled(self, factor: float) -> "CompensatedUpdate":
        """Return `factor` times the sum, as a view to read from that commits nothing.  The sum must not be `in_place`."""
        weights = [None if weight is None else weight * factor for weight in self.weights]
        return CompensatedUpdate(
            *self.parts, weights=weights, bounded=self.bounded, context=self.context, hint=self.hint, origin=self.origin
        )

    def dense(self) -> Vector:
        """Return the sum as one new vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for start, block in self.blocks():
            whole[start : start + block.size] = block
        return whole

    def _slice(self, start: int, stop: int) -> "CompensatedUpdate":
        tensor = CompensatedUpdate(
            *(part[start:stop] for part in self.parts),
            weights=self.weights,
            commit_rule=self.commit_rule,
            in_place=self.in_place,
            bounded=self.bounded,
            context=EncodeContext(self.context.seed, self.context.round),
            origin=self.origin + start,
        )
        tensor.committed = self.committed
        return tensor

    def _settling(self, size: int) -> Iterator[tuple[int, Vector]]:
        """Yield (start, entries of the sum), and commit these entries; if the reader stops early, commit the rest as well."""
        starts = iter(range(0, self.n, size))
        try:
            for start in starts:
                yield start, self._apply(slice(start, start + size))
        finally:
            for start in starts:
                self._apply(slice(start, start + size))
            self._mark_committed()

    def _apply(self, entries: slice) -> Any:
        return self.commit_rule.apply(*(part[entries] for part in self.parts))

    def _mark_committed(self) -> None:
        self.weights, self.committed = self.commit_rule.weights, True

    def _bound(self, block: Vector, parts: list[Vector], start: int) -> Vector:
        """Return the block within float32 if the sum is bounded and its parts are finite; raise `NonFiniteError` if not."""
        for suspect in parts if self.bounded else [block]:
            if not np.isfinite(suspect).all():
                index = int(np.flatnonzero(~np.isfinite(suspect))[0])
                raise NonFiniteError(self.origin + start + index, float(suspect[index]))
        return np.nan_to_num(block, nan=0.0, posinf=MAX_FLOAT32, neginf=-MAX_FLOAT32)


def move_into_first(weights: Sequence[float]) -> CommitRule:
    """Return the rule that leaves the sum with these `weights` in the memory of the first part."""

    def add(first: Any, *rest: Any) -> Any:
        if weights[0] != 1:
            first *= weights[0]
        for part, weight in zip(rest, weights[1:], strict=True):
            first += part if weight == 1 else part * weight
        return first

    return CommitRule(add, (1.0, *(None for _ in weights[1:])))


def _weighted_sum(parts: list[Vector], weights: list[float], out: Vector, product: Vector) -> Vector:
    """Write the weighted sum of `parts` to `out`; `product` is scratch memory."""
    first = parts[0]
    if weights[0] != 1:
        first = np.multiply(first, np.float32(weights[0]), out=out)
    elif len(parts) == 1:
        out[...] = first
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        if weight != 1:
            part = np.multiply(part, np.float32(weight), out=product[: part.size].reshape(part.shape))
        first = np.add(first, part, out=out)
    return out
