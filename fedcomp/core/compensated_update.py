"""The sum of a sender's memory and its update, as quantizers read it: block by block, never as a whole."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedcomp.core.context import EncodeContext, Shapes
from fedcomp.core.types import Vector
from fedcomp.errors import NonFiniteError

BLOCK_ENTRIES = 1 << 16
"""Entries worked on at a time: a block and its temporaries stay in the processor's cache."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)


class CompensatedUpdate:
    """The entry-wise weighted sum of float32 vectors of one length, summed block by block while it is read.

    A sender's memory and its update are never summed into a temporary of the vector's size.
    `in_place` is for a sum that is known to be finite: the first reading leaves it in the first part's memory, which saves a
    pass over all.  A sum that is `bounded` stays at the largest float32 where finite parts lead beyond it; any other is
    refused there.  `occasion` is what else the sender knows, `hint` what its memory tells the quantizer.  `origin` is where
    the first entry stands in a longer vector: errors count from there.
    """

    __slots__ = ("bounded", "context", "hint", "in_place", "origin", "parts", "weights")

    def __init__(
        self,
        *parts: Any,
        weights: Sequence[float] | None = None,
        in_place: bool = False,
        bounded: bool = False,
        context: EncodeContext = EncodeContext(),
        hint: Any = None,
        origin: int = 0,
    ) -> None:
        """Take numpy vectors, or torch tensors of one device."""
        self.parts: tuple[Any, ...] = parts
        self.weights: tuple[float, ...] = tuple(weights or (1.0,) * len(parts))
        self.in_place, self.bounded, self.context, self.hint = in_place, bounded, context, hint
        self.origin = origin

    @property
    def n(self) -> int:
        """Entries of each part and of the sum."""
        return int(self.parts[0].shape[0])

    @property
    def on_host(self) -> bool:
        """Whether the parts are numpy vectors."""
        return isinstance(self.parts[0], np.ndarray)

    @property
    def shapes(self) -> Shapes:
        """The shapes of the tensors behind the vector; one of `n` entries where none are known."""
        return self.context.shapes or ((self.n,),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor that has any."""
        return tuple(size for size in map(math.prod, self.shapes) if size)

    @property
    def block_size(self) -> int:
        """Entries of a block, the last one apart: small beside the vector, and small enough for the cache."""
        return min(self.n, BLOCK_ENTRIES if self.n >= 64 * BLOCK_ENTRIES else BLOCK_ENTRIES // 2)

    def blocks(self, size: int | None = None) -> Iterator[tuple[int, Vector]]:
        """Yield (start, entries) in order; the entries are to be read before the next block, never written.

        Raises `NonFiniteError` at a block that holds NaN or infinity.
        """
        size = min(size or self.block_size, self.n)
        if self.in_place and len(self.parts) > 1:
            yield from self._settling(size)
            return
        plain = len(self.parts) == 1 and self.weights == (1.0,)
        buffer = np.empty(0 if plain else size, np.float32)
        product = np.empty(size if any(weight != 1 for weight in self.weights[1:]) else 0, np.float32)
        for start in range(0, self.n, size):
            parts = [_host(part[start : start + size]) for part in self.parts]
            with np.errstate(over="ignore", invalid="ignore"):
                block = parts[0] if plain else self._sum(parts, buffer[: parts[0].size], product)
            if not (self.in_place or np.isfinite(block).all()):
                block = self._bound(block, parts, start)
            yield start, block

    def sample(self, begin: int, step: int, run: int) -> Vector:
        """Return the entries of every `step`-th run of `run` neighbours, the first one of number `begin`, as one vector."""
        cut = self.n // run * run
        runs = [part[:cut].reshape(-1, run)[begin::step] for part in self.parts]
        with np.errstate(over="ignore", invalid="ignore"):
            if all(weight == 1 for weight in self.weights):
                return np.asarray(np.add.reduce(runs)).ravel()
            buffer = np.empty(runs[0].shape, np.float32)
            return self._sum(runs, buffer, np.empty(runs[0].size, np.float32)).ravel()

    def at(self, indices: Any) -> Vector:
        """Return the entries at `indices`."""
        parts = [np.ascontiguousarray(_host(part[indices])) for part in self.parts]
        with np.errstate(over="ignore", invalid="ignore"):
            return self._sum(parts, np.empty(parts[0].size, np.float32), np.empty(parts[0].size, np.float32))

    def tensors(self) -> Iterator[tuple[int, "CompensatedUpdate"]]:
        """Yield (start, sum) of each tensor behind the vector that has entries; each is to be read before the next."""
        start = 0
        for size in self.sizes:
            yield start, self._part(slice(start, start + size))
            start += size
        if self.in_place:
            self._settled()

    def settle(self) -> Any:
        """Return the sum in the first part's memory."""
        first = self.parts[0]
        if self.weights[0] != 1:
            first *= self.weights[0]
        with np.errstate(over="ignore"):
            for part, weight in zip(self.parts[1:], self.weights[1:], strict=True):
                first += part if weight == 1 else part * weight
        self.parts, self.weights = (first,), (1.0,)
        return first

    def dense(self) -> Vector:
        """Return the sum as one new vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for start, block in self.blocks():
            whole[start : start + block.size] = block
        return whole

    def _part(self, part: slice) -> "CompensatedUpdate":
        return type(self)(
            *(one[part] for one in self.parts),
            weights=self.weights,
            in_place=self.in_place,
            bounded=self.bounded,
            context=EncodeContext(self.context.seed, self.context.round),
            origin=self.origin + part.start,
        )

    def _settling(self, size: int) -> Iterator[tuple[int, Vector]]:
        done = 0
        try:
            for start in range(0, self.n, size):
                done = min(start + size, self.n)
                yield start, self._settle(start, done)
        finally:
            for start in range(done, self.n, size):
                self._settle(start, min(start + size, self.n))
            self._settled()

    def _settled(self) -> None:
        self.parts, self.weights = self.parts[:1], (1.0,)

    def _settle(self, start: int, end: int) -> Vector:
        """Leave the sum of these entries in the first part's memory, and return it."""
        parts = [part[start:end] for part in self.parts]
        product = np.empty(end - start if any(weight != 1 for weight in self.weights[1:]) else 0, np.float32)
        return self._sum(parts, parts[0], product)

    def _sum(self, parts: list[Vector], out: Vector, product: Vector) -> Vector:
        """Write the weighted sum of `parts` into `out`, which may be the first of them."""
        first, rest = parts[0], parts[1:]
        if self.weights[0] != 1:
            first = np.multiply(first, np.float32(self.weights[0]), out=out)
        elif not rest:
            out[...] = first
        for part, weight in zip(rest, self.weights[1:], strict=True):
            if weight != 1:
                part = np.multiply(part, np.float32(weight), out=product[: part.size].reshape(part.shape))
            first = np.add(first, part, out=out)
        return out

    def _bound(self, block: Vector, parts: list[Vector], start: int) -> Vector:
        """Return the block within float32, where that is asked for; refuse it where not, or where a part is not finite."""
        for wrong in parts if self.bounded else [block]:
            if not np.isfinite(wrong).all():
                at = int(np.flatnonzero(~np.isfinite(wrong))[0])
                raise NonFiniteError(self.origin + start + at, float(wrong[at]))
        return np.nan_to_num(block, nan=0.0, posinf=MAX_FLOAT32, neginf=-MAX_FLOAT32)


def _host(part: Any) -> Vector:
    return part if isinstance(part, np.ndarray) else np.asarray(part.detach().cpu().numpy(), np.float32)
