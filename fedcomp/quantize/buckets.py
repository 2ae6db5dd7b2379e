"""What quantizers that send every entry share: buckets, tensors, their ranges, and levels drawn at random between two."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, RandomStream, Vector, check_int

MAX_BUCKET = 1 << 20
Whole = NDArray[np.int32]
Words = NDArray[np.uint32]


def check_bucket(bucket: int) -> None:
    """Refuse a bucket of no entry, or of more than 2^20."""
    check_int("bucket", bucket, 1, MAX_BUCKET, "the entries that share a scale")


def folded(value: CompensatedUpdate, bucket: int) -> Iterator[tuple[slice, slice, Vector]]:
    """Yield (entries, buckets, the entries as rows, one a bucket), about a block each; the last bucket may be shorter."""
    for start, block in value.blocks(max(1, value.block_size // bucket) * bucket):
        first, rows = start // bucket, block.size // bucket
        cut = rows * bucket
        if rows:
            yield slice(start, start + cut), slice(first, first + rows), block[:cut].reshape(rows, bucket)
        if cut < block.size:
            yield slice(start + cut, start + block.size), slice(first + rows, first + rows + 1), block[None, cut:]


def by_tensor(value: CompensatedUpdate) -> Iterator[tuple[int, slice, Vector]]:
    """Yield (number of the tensor, entries, the entries' values): blocks, cut where a tensor ends."""
    ends = np.cumsum(value.sizes).tolist()
    tensor = 0
    for start, block in value.blocks():
        at = start
        while at < start + block.size:
            stop = min(start + block.size, ends[tensor])
            yield tensor, slice(at, stop), block[at - start : stop - start]
            tensor += stop == ends[tensor]
            at = stop


def norms(rows: Vector, norm: str) -> Vector:
    """Return of each row the largest magnitude ("max"), or the Euclidean norm ("l2") as far as float32 reaches.

    Neither is below the largest magnitude, so that no ratio exceeds 1: float64 holds the squares of float32 exactly, and
    sums and roundings are monotone.
    """
    if norm == "max":
        return np.asarray(np.abs(rows).max(axis=1), np.float32)
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return np.asarray(np.minimum(lengths, MAX_FLOAT32), np.float32)


def ratios(rows: Vector, scales: Vector) -> Vector:
    """Return the rows over their scales, of [-1, 1] where no entry exceeds its scale, as one vector.

    A division, where a product with the inverse could exceed 1, and overflows for denormals.  Over 0 it is over 1.
    """
    divisors = np.asarray(np.where(scales > 0, scales, 1), np.float32)
    return np.divide(rows, divisors[:, None]).ravel()


def middle(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """Return (offsets, scales): the middles of the ranges and half their widths, no sum of the two beyond float32."""
    offsets, scales = ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)
    room = MAX_FLOAT32 - np.abs(offsets, dtype=np.float64)
    return offsets, np.where(scales > room, np.nextafter(room.astype(np.float32), np.float32(0)), scales)


def drawing(context: EncodeContext) -> RandomStream:
    """Return the random numbers that rounding uses, apart from those that the same seed gives for anything else."""
    return RandomStream(context.seed, int.from_bytes(b"rounding", "big"))


def at_random(ratios: Vector, levels: int, words: Words) -> Whole:
    """Return for each ratio of [-1, 1] one of the two whole numbers next to ``levels * ratio``, the mean of the draws.

    In fixed point, where nothing rounds up to a level too far: the mean is exact to 2^-23 of a level or better, for up to
    255 levels.  `words`, as many random ones, are spent.
    """
    point = 31 - levels.bit_length()
    fixed = np.empty(ratios.size, np.int32)
    np.multiply(ratios, np.float32(levels << point), out=fixed, casting="unsafe")
    words >>= np.uint32(32 - point)
    fixed += words.view(np.int32)
    fixed >>= np.int32(point)
    return fixed


def carried(magnitudes: Whole, words: Words) -> Whole:
    """Return the exponents of `magnitudes`, read as the bits of float32, one up with the odds that the mantissa says.

    A random number below 2^23 is added, and the carry decides.  Both arguments are spent.
    """
    words >>= np.uint32(9)
    magnitudes += words.view(np.int32)
    magnitudes >>= np.int32(23)
    return magnitudes


def signed(magnitudes: Whole, like: Vector) -> Whole:
    """Return `magnitudes`, spent, with the signs of the entries of `like`."""
    negative = like.view(np.int32) >> np.int32(31)  # 0, or -1: all bits set
    magnitudes ^= negative
    magnitudes -= negative
    return magnitudes


def unsigned(count: int) -> type[np.unsignedinteger[Any]]:
    """Return the dtype of `count` levels."""
    return np.uint8 if count <= 256 else np.uint16
