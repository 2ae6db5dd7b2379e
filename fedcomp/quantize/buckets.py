"""Helpers of the quantizers that send every entry: buckets, tensors, their ranges, and rounding at random."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, RandomStream, Vector, check_choice, check_int
from fedcomp.quantized import Levels, Scale, group_count, level_type

MAX_BUCKET = 1 << 20
MAX_EXPONENT = 254  # of the largest power of two, 2^127, as float32 stores it
Integers = NDArray[np.int32]
Words = NDArray[np.uint32]


def check_bucket(bucket: int, norm: str = "max") -> None:
    """Refuse a bucket that is not of 1 to 2^20 entries, and a norm that `norms` does not know."""
    check_int("bucket", bucket, 1, MAX_BUCKET, "the entries that share a scale")
    check_choice("norm", norm, ("l2", "max"))


def bucket_rows(value: CompensatedUpdate, bucket: int) -> Iterator[tuple[slice, slice, Vector]]:
    """Yield (entries, buckets, the entries as one row per bucket), about a block each; the last bucket may be shorter."""
    for start, block in value.blocks(max(1, value.block_size // bucket) * bucket):
        first, rows = start // bucket, block.size // bucket
        cut = rows * bucket
        if rows:
            yield slice(start, start + cut), slice(first, first + rows), block[:cut].reshape(rows, bucket)
        if cut < block.size:
            yield slice(start + cut, start + block.size), slice(first + rows, first + rows + 1), block[None, cut:]


def tensor_blocks(value: CompensatedUpdate) -> Iterator[tuple[int, slice, Vector]]:
    """Yield (number of the tensor, entries, their values), in blocks that end where a tensor ends."""
    ends = np.cumsum(value.sizes).tolist()
    tensor = 0
    for start, block in value.blocks():
        begin = start
        while begin < start + block.size:
            stop = min(start + block.size, ends[tensor])
            yield tensor, slice(begin, stop), block[begin - start : stop - start]
            tensor += stop == ends[tensor]
            begin = stop


def rounded_buckets(
    value: CompensatedUpdate, bucket: int, norm: str, scale: Scale, rounding: Callable[[Vector, Words], Integers]
) -> Levels:
    """Return each entry as a level around the middle one of `scale`; the scale of a bucket is its norm.

    `rounding` turns ratios in [-1, 1], with one random word for each, into steps from the middle level.
    """
    stream = rounding_stream(value.context)
    levels = np.empty(value.n, level_type(scale.count))
    scales = np.empty(group_count(value.n, bucket), np.float32)
    for entries, buckets, rows in bucket_rows(value, bucket):
        scales[buckets] = norms(rows, norm)
        steps = rounding(ratios(rows, scales[buckets]), stream.words(rows.size))
        np.add(steps, scale.count // 2, out=levels[entries], casting="unsafe")
    return Levels(levels, scale, scales, None, bucket)


def norms(rows: Vector, norm: str) -> Vector:
    """Return for each row its largest magnitude ("max"), or its Euclidean norm ("l2"), at most the largest float32.

    No result is below the largest magnitude: float64 holds the squares of float32 exactly, and roundings are monotone.
    """
    if norm == "max":
        return np.asarray(np.abs(rows).max(axis=1), np.float32)
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    return np.asarray(np.minimum(lengths, MAX_FLOAT32), np.float32)


def ratios(rows: Vector, scales: Vector) -> Vector:
    """Return the rows divided by their scales (by 1 where the scale is 0), as one vector.

    A division is needed: a product with the inverse could exceed 1, and would overflow for denormals.
    """
    divisors = np.asarray(np.where(scales > 0, scales, 1), np.float32)
    return np.divide(rows, divisors[:, None]).ravel()


def midpoints(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Vector, Vector]:
    """Return (offsets, scales): the middles of the ranges, and half of their widths.  Offset ± scale stays within float32."""
    offsets = ((low + high) / 2).astype(np.float32)
    return offsets, scales_within_float32((high - low) / 2, offsets)


def scales_within_float32(scales: NDArray[np.float64], offsets: Vector) -> Vector:
    """Return `scales`, up to the largest float32, as float32, lowered where offset ± scale would exceed float32."""
    rounded, room = scales.astype(np.float32), MAX_FLOAT32 - np.abs(offsets, dtype=np.float64)
    return np.where(rounded > room, np.nextafter(room.astype(np.float32), np.float32(0)), rounded)


def rounding_stream(context: EncodeContext) -> RandomStream:
    """Return the random numbers for rounding, independent of the other random numbers of the same seed."""
    return RandomStream(context.seed, int.from_bytes(b"rounding", "big"))


def round_at_random(ratios: Vector, levels: int, words: Words) -> Integers:
    """Return for each ratio in [-1, 1] one of the two whole numbers next to ``levels * ratio``, without bias.

    Computed in fixed point, where nothing rounds up to a level too far.  The mean is exact to 2^-23 of a level or better, for
    up to 255 levels.  `words`, one per ratio, are overwritten.
    """
    point = 31 - levels.bit_length()
    fixed = np.empty(ratios.size, np.int32)
    np.multiply(ratios, np.float32(levels << point), out=fixed, casting="unsafe")
    words >>= np.uint32(32 - point)
    fixed += words.view(np.int32)
    fixed >>= np.int32(point)
    return fixed


def round_exponents(magnitudes: Integers, words: Words) -> Integers:
    """Return the exponents of `magnitudes`, the bits of float32; each is raised by one with probability mantissa / 2^23.

    A random number below 2^23 is added, and the carry decides.  Both arguments are overwritten.
    """
    words >>= np.uint32(9)
    magnitudes += words.view(np.int32)
    magnitudes >>= np.int32(23)
    return magnitudes


def natural_exponents(values: Vector, words: Words) -> Integers:
    """Return each magnitude's exponent, as float32 stores it, rounded at random without bias, at most `MAX_EXPONENT`."""
    exponents = round_exponents(values.view(np.int32) & np.int32(0x7FFFFFFF), words)
    return np.minimum(exponents, np.int32(MAX_EXPONENT), out=exponents)


def signed(magnitudes: Integers, like: Vector) -> Integers:
    """Return `magnitudes`, overwritten, with the signs of the entries of `like`."""
    negative = like.view(np.int32) >> np.int32(31)  # 0, or -1: all bits set
    magnitudes ^= negative
    magnitudes -= negative
    return magnitudes
