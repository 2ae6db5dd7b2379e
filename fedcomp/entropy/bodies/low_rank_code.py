"""The factors of low-rank matrices and the entries between them, as float32."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import MAX_PRODUCT, Dense, LowRankFactors, Product, worthwhile

MAX_PARTS = 1 << 16
Part = tuple[int, int, int, int]
"""Entries, rank, rows, columns; the last three 0 where the entries are as they are."""


@dataclass(frozen=True, slots=True)
class LowRankRaw:
    """What the parts are, then four bytes a number."""

    def encode(self, value: LowRankFactors, /) -> bytes:
        """Return the body: n, the number of parts, rank and sides of each, then the numbers of each: left, right."""
        if value.n > MAX_ENTRIES or len(value.parts) > MAX_PARTS:
            raise ValueError(
                f"a vector of {value.n} entries in {len(value.parts)} parts; "
                f"at most {MAX_ENTRIES} in {MAX_PARTS} can be encoded"
            )
        plan, numbers = [varint.put(value.n), varint.put(len(value.parts))], []
        for part in value.parts:
            if isinstance(part, Product):
                rank, rows = part.left.shape
                plan += map(varint.put, (rank, rows, part.right.shape[1]))
                numbers += [part.left, part.right]
            else:
                plan += map(varint.put, (0, part.n))
                numbers.append(part.vector)
        return b"".join(plan + [array.astype("<f4", copy=False).tobytes() for array in numbers])

    def decode(self, value: bytes, /, n: int | None = None) -> LowRankFactors:
        """Return the factors and the entries between them."""
        total, at = head.take_n(value, n)
        plan, at = _take_plan(value, at, total)
        needed = sum(_numbers(part) for part in plan)
        if len(value) - at != 4 * needed:
            raise CorruptError(f"{len(value) - at} bytes of numbers; {needed} need {4 * needed}")
        numbers = np.frombuffer(value, "<f4", offset=at).astype(np.float32)
        if not all(
            np.isfinite(numbers[start : start + BLOCK_ENTRIES]).all() for start in range(0, needed, BLOCK_ENTRIES)
        ):
            raise CorruptError("a body holds NaN or infinity")
        return LowRankFactors(tuple(_parts(plan, numbers)))


def _numbers(part: Part) -> int:
    entries, rank, rows, columns = part
    return rank * (rows + columns) if rank else entries


def _take_plan(data: bytes, at: int, n: int) -> tuple[list[Part], int]:
    """Return the parts, which are together `n` entries and no more numbers than `data` holds, and where they end."""
    count, at = varint.take(data, at, "the number of parts")
    if count > MAX_PARTS:
        raise CorruptError(f"{count} parts; at most {MAX_PARTS}")
    plan: list[Part] = []
    left, needed = n, 0
    for number in range(count):
        rank, at = varint.take(data, at, "a rank")
        rows, at = varint.take(data, at, "the first side of a part")
        if not rank:
            if not 0 < rows <= left:
                raise CorruptError(f"part {number} has {rows} entries of the {left} that are left")
            if plan and not plan[-1][1]:
                raise CorruptError(f"part {number} goes on as the one before; they are one")
            part = rows, 0, 0, 0
        else:
            columns, at = varint.take(data, at, "the second side of a part")
            if rows * columns >= left + columns or not worthwhile(rows, columns, rank):
                raise CorruptError(f"part {number} is {rows} x {columns} of rank {rank}; {left} entries are left")
            part = min(rows * columns, left), rank, rows, columns
        plan.append(part)
        left -= part[0]
        needed += _numbers(part)
        if 4 * needed > len(data) - at:
            raise TruncatedError(f"{len(data) - at} bytes; {number + 1} parts need {4 * needed}")
    if left:
        raise CorruptError(f"parts of {n - left} entries; the body is of {n}")
    return plan, at


def _parts(plan: list[Part], numbers: NDArray[np.float32]) -> Iterator[Product | Dense]:
    at = 0
    for part in plan:
        entries, rank, rows, columns = part
        mine = numbers[at : at + _numbers(part)]
        at += mine.size
        if not rank:
            yield Dense(mine)
            continue
        product = Product(entries, mine[: rank * rows].reshape(rank, rows), mine[rank * rows :].reshape(rank, columns))
        if product.bound > MAX_PRODUCT:
            raise CorruptError(f"factors whose product may be {product.bound:g}; at most {MAX_PRODUCT:g}")
        yield product
