"""Levels of all entries: the scales as they are, then the levels in the fewest bytes of several codes.

Those of `alphabet.py` take every entry by itself.  Where most levels are the middle one, the zero, they may be written as in
Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017, section 3.2: of each
other level the Elias code of the gap from the one before, a bit for the sign, and the Elias code of its distance from zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.entropy.bits import prefix_stream, varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet, elias
from fedcomp.entropy.codes.golomb_positions import ascend
from fedcomp.entropy.codes.symbol_set import octets, symbol_type
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Groups, Levels, Scale, group_count

OFFSETS, TENSORS = 4, 8
"""Flags beside the kind of the scale."""
SPARSE = 16
"""Added to the number of the Elias code, it stands in place of the mode of an alphabet."""
COUNTS = {LINEAR: range(2, 512), POWERS: range(3, 256, 2), EXPONENTS: range(509, 510)}
MAX_TENSORS = 1 << 16


@dataclass(frozen=True, slots=True)
class LevelsCode:
    """The body is head, groups, scales, offsets, levels.  Codec 7."""

    def encode(self, value: Levels, /) -> bytes:
        """Return the body."""
        if not 1 <= value.n <= MAX_ENTRIES:
            raise ValueError(f"a vector of {value.n} entries; 1 to {MAX_ENTRIES} can be encoded")
        if isinstance(value.groups, tuple) and len(value.groups) > MAX_TENSORS:
            raise ValueError(f"{len(value.groups)} tensors; at most {MAX_TENSORS} can be encoded")
        flags = value.scale.kind
        flags |= OFFSETS if value.offsets is not None else 0
        flags |= TENSORS if isinstance(value.groups, tuple) else 0
        sizes = (len(value.groups), *value.groups) if isinstance(value.groups, tuple) else (value.groups,)
        numbers = value.scales if value.offsets is None else np.concatenate((value.scales, value.offsets))
        return b"".join(
            (
                varint.put(value.n),
                bytes([flags]),
                *map(varint.put, (value.scale.count, *sizes)),
                numbers.astype("<f4").tobytes(),
                *_write_levels(value.levels, value.scale.count),
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> Levels:
        """Return the symbols.

        A few bytes may stand for any number of equal levels.  Where `n` is not given, a body is refused that claims more than
        2^20 entries and more than 1024 for each of its bytes.
        """
        total, at = head.take_n(value, n)
        if not total:
            raise CorruptError("a body for no entries; it has one at least")
        head.check_claim(value, total, n)
        scale, flags, at = _take_scale(value, at)
        groups, at = _take_groups(value, at, total, bool(flags & TENSORS))
        scales, offsets, at = _take_scales(value, at, group_count(total, groups), bool(flags & OFFSETS))
        _check(scale, scales, offsets)
        levels, at = _take_levels(value, at, total, scale.count)
        head.check_end(value, at)
        return Levels(levels, scale, scales, offsets, groups)


# ---- head ------------------------------------------------------------------------------------------------------------


def _take_scale(data: bytes, at: int) -> tuple[Scale, int, int]:
    """Return the scale, the flags and where the next field begins."""
    if at >= len(data):
        raise TruncatedError("the body ends before the kind of the scale")
    kind, flags = data[at] & 3, data[at] & ~3
    if kind not in COUNTS or flags & ~(OFFSETS | TENSORS):
        raise CorruptError(f"a scale of kind {kind} with flags {flags}; not known")
    count, at = varint.take(data, at + 1, "the number of levels")
    if count not in COUNTS[kind]:
        raise CorruptError(f"{count} levels in a scale of kind {kind}")
    return Scale(kind, count), flags, at


def _take_groups(data: bytes, at: int, n: int, tensors: bool) -> tuple[Groups, int]:
    if not tensors:
        bucket, at = varint.take(data, at, "the size of a bucket")
        if not 1 <= bucket <= MAX_ENTRIES:
            raise CorruptError(f"buckets of {bucket} entries; they have 1 to {MAX_ENTRIES}")
        return bucket, at
    count, at = varint.take(data, at, "the number of tensors")
    if not 1 <= count <= min(MAX_TENSORS, len(data) - at):
        raise CorruptError(f"{count} tensors in {len(data) - at} bytes; at most {MAX_TENSORS}")
    sizes = []
    for _ in range(count):
        size, at = varint.take(data, at, "the size of a tensor")
        sizes.append(size)
    if min(sizes) < 1 or sum(sizes) != n:
        raise CorruptError(
            f"tensors of {min(sizes)} entries or more, {sum(sizes)} in all; {n} are needed, none without any"
        )
    return tuple(sizes), at


def _take_scales(data: bytes, at: int, count: int, with_offsets: bool) -> tuple[Vector, Vector | None, int]:
    numbers, at = octets(data, at, (8 if with_offsets else 4) * count, "scales")
    values = numbers.view("<f4").astype(np.float32)
    return values[:count], values[count:] if with_offsets else None, at


def _check(scale: Scale, scales: Vector, offsets: Vector | None) -> None:
    """Refuse scales that are not finite, 0 or above, and values that float32 does not reach."""
    if np.signbit(scales).any() or not np.isfinite(scales).all():
        raise CorruptError("a scale that is negative or not finite")
    with np.errstate(over="ignore", invalid="ignore"):
        largest = scales * scale.values()[-1]
        if offsets is not None:
            largest += np.abs(offsets)
    if not np.isfinite(largest).all():
        raise CorruptError("scales and offsets whose values are not finite")


# ---- levels ----------------------------------------------------------------------------------------------------------


def _write_levels(levels: NDArray[Any], count: int) -> Iterator[bytes]:
    counts = alphabet.histogram(levels, count)
    plan = alphabet.plan(counts)
    k = levels.size - int(counts[count // 2])
    if count % 2 and 0 < 64 * k <= levels.size:  # with more of them, other codes of the gaps are far shorter
        sparse = SparseRegime(levels, counts)
        if sparse.bits < plan.bits:
            return sparse.write()
    return plan.write(levels)


def _take_levels(data: bytes, at: int, n: int, count: int) -> tuple[NDArray[Any], int]:
    if at < len(data) and count % 2 and 0 <= data[at] - SPARSE < len(elias.CODES):
        return take_sparse(data, at, n, count)
    return alphabet.take(data, at, n, count)


class SparseRegime:
    """The levels that are not the middle one, in the Elias code that takes the fewest bits of the three."""

    def __init__(self, levels: NDArray[Any], counts: alphabet.Counts) -> None:
        """Find how many bits that takes."""
        middle = counts.size // 2
        indices = np.concatenate(
            [
                np.flatnonzero(levels[at : at + BLOCK_ENTRIES] != middle) + at
                for at in range(0, levels.size, BLOCK_ENTRIES)
            ]
        )
        self._gaps = np.diff(indices, prepend=-1)
        self._steps = levels[indices].astype(np.int64) - middle
        # In all three codes, integers of as many digits take as many bits.
        digits = np.bincount(np.frexp(self._gaps)[1])
        distances = counts[middle + 1 :] + counts[:middle][::-1]
        far = np.flatnonzero(distances)
        totals = [
            int(digits[1:] @ write(1 << np.arange(digits.size - 1))[1].astype(np.int64))
            + int(distances[far] @ write(far + 1)[1].astype(np.int64))
            for write, _ in elias.CODES
        ]
        self._code = int(np.argmin(totals))
        self._total = totals[self._code] + indices.size
        self.bits = (
            8 + 8 * len(varint.put(indices.size)) + prefix_stream.head_bits(indices.size, self._total) + self._total
        )

    def write(self) -> Iterator[bytes]:
        """Yield the stream."""
        k = self._gaps.size
        yield bytes([SPARSE + self._code]) + varint.put(k)
        yield prefix_stream.write(self._batches(), k, self._total, per_item=2)

    def _batches(self) -> Iterator[tuple[elias.Words, elias.Words]]:
        write, _ = elias.CODES[self._code]
        for start in range(0, self._gaps.size, prefix_stream.BATCH):
            steps = self._steps[start : start + prefix_stream.BATCH]
            codewords, lengths = np.empty((2, steps.size, 2), np.uint64)
            codewords[:, 0], lengths[:, 0] = write(self._gaps[start : start + prefix_stream.BATCH])
            codewords[:, 1], lengths[:, 1] = write(np.abs(steps))
            codewords[:, 1] |= (steps < 0).astype(np.uint64) << lengths[:, 1]
            lengths[:, 1] += np.uint64(1)
            yield codewords.reshape(-1), lengths.reshape(-1)


def take_sparse(data: bytes, at: int, n: int, count: int) -> tuple[NDArray[Any], int]:
    """Return the `n` levels of `count` that `SparseRegime` wrote, and where the next field begins."""
    _, read = elias.CODES[data[at] - SPARSE]
    k, at = varint.take(data, at + 1, "the number of levels that are not zero")
    if not 1 <= k <= min(n, 8 * len(data)):
        raise CorruptError(f"{k} levels that are not zero, of {n} in {len(data)} bytes")
    stream = prefix_stream.ChunkedBitReader(data, at, k, "Elias codewords")
    middle, most = count // 2, np.uint64(count)
    gaps = np.empty((stream.chunks, stream.size), np.int64)
    steps = np.empty(gaps.shape, np.int16)  # `count` stands for whatever is beyond every level
    for rows, live in stream.steps():
        for row in rows:
            gaps[:live, row], lengths = read(stream.windows(live))
            stream.skip(lengths)
            windows = stream.windows(live)
            distance, lengths = read(windows << np.uint64(1))
            stream.skip(lengths + np.uint64(1))
            step = np.minimum(distance, most).view(np.int64)
            steps[:live, row] = np.negative(step, out=step, where=windows >> np.uint64(63) == 1)
    stream.finish()
    gaps, steps = gaps.reshape(-1)[:k], steps.reshape(-1)[:k]
    farthest = max(steps.max(), -steps.min())
    if gaps.max() > n or farthest > middle:
        raise CorruptError(f"a gap of {gaps.max()} or a level {farthest} from zero; at most {n} and {middle}")
    indices = ascend(gaps, n)
    levels = np.full(n, middle, symbol_type(count))
    steps += middle
    levels[indices] = steps
    return levels, stream.end
