"""Even levels between the least and the largest entry of a bucket, in as many bits a layer as it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, Vector, check_bool, check_choice, check_int, check_range
from fedcomp.quantize.buckets import (
    Words,
    bucket_rows,
    check_bucket,
    midpoints,
    ratios,
    round_at_random,
    rounding_stream,
    scales_within_float32,
)
from fedcomp.quantize.error_bound import BELOW_ONE, Contracting, ErrorBound, Unbiased
from fedcomp.quantize.per_tensor import check_dense_below, stay_dense
from fedcomp.quantize.random_rounding import small_entries_variance
from fedcomp.quantized import LINEAR, Dense, Levels, Scale, Segments, group_count, join_dense

Ranges = tuple[Vector, Vector]
"""Offsets and scales of a layer's buckets."""
MIN_ADAPTIVE_BITS, MAX_ADAPTIVE_BITS = 2, 8


@dataclass(frozen=True, slots=True)
class Cgx:
    """Round each entry of a layer to one of 2^`bits` levels between the least and the largest of its `bucket`.

    `rounding` is "nearest", or "random": to one of the two next levels, without bias.  With `scale` "range" the levels are
    spread evenly between the ends of the range.  "minimal" moves and stretches the levels of each bucket to the least squared
    error, for error feedback and for theories that need a contraction.
    With u = (max - min) / (2^bits - 1), the nearest level is floor((x - min) / u + 1/2); if `adaptive`, each layer gets 2 to
    8 bits.
    Markov, Ramezanikebrya, Alistarh, "CGX: Adaptive System Support for Communication-Efficient Deep Learning", Middleware
    2022.  Adaptive bits keep the error within `tolerance` times that of `bits` in every layer (`allocate`).
    Tensors of one dimension or none, and tensors of fewer than `dense_below` entries, are sent unchanged.  If the shapes are
    unknown, the vector is one layer.
    """

    bits: int = 4
    bucket: int = 1024
    adaptive: bool = False
    tolerance: float = 1.0
    dense_below: int = 1024
    rounding: str = "nearest"
    scale: str = "range"

    def __post_init__(self) -> None:
        check_bool("adaptive", self.adaptive)
        check_int("bits", self.bits, 2 if self.adaptive else 1, 8, "bits an entry")
        check_bucket(self.bucket)
        check_range("tolerance", self.tolerance, above=0, most=1e6, what="a factor of the error")
        least = least_tolerance(self.bits)
        if self.adaptive and self.tolerance < least:
            raise ValueError(
                f"tolerance is {self.tolerance:g} with bits={self.bits}; at least {least:g} is needed: "
                f"{MAX_ADAPTIVE_BITS} bits in every layer, the most that `adaptive` chooses, have that error"
            )
        check_dense_below(self.dense_below)
        check_choice("rounding", self.rounding, ("nearest", "random"))
        check_choice("scale", self.scale, ("range", "minimal"))

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the variance of random rounding, or the factor of rounding to the nearest level.

        In a bucket with entries of both signs, each entry is off by at most half a step.  The two ends of the range are exact,
        and the sum of their squares is at least half of the squared range.  In a bucket of one sign, an entry is off by at
        most its own magnitude.
        """
        bucket, steps = min(self.bucket, n), (1 << (MIN_ADAPTIVE_BITS if self.adaptive else self.bits)) - 1
        two_signs = max(0, bucket - 2) / (2 * steps**2)
        variance = max(two_signs, small_entries_variance(bucket, steps))
        if self.rounding == "random":
            return Unbiased(variance) if self.scale == "range" else Contracting(variance / (1 + variance))
        off = (bucket - 1) / (4 * steps**2)
        factor = max(two_signs, off / (1 + off))
        if self.scale == "minimal":  # no worse than the levels whose zero is next to that of the entries
            factor = min(factor, BELOW_ONE, 1 - 1 / (2 * bucket * steps) ** 2)
        return Contracting(factor) if factor < 1 else None

    def contracting(self) -> "Cgx":
        """Return the quantizer with the levels of least error."""
        return replace(self, scale="minimal")

    def quantize(self, value: CompensatedUpdate, /) -> Segments:
        """Return the layers, with neighbouring dense layers joined into one.

        Raises `ValueError` if an entry is NaN or infinite.
        """
        stays = stay_dense(value.context.shapes, max(1, self.dense_below)) or [False]
        # The bits of a layer depend on the ranges of all layers, so all ranges come first.
        found: list[Vector | Ranges] = [
            tensor.dense() if dense else _ranges(tensor, self.bucket)
            for (_, tensor), dense in zip(value.tensors(), stays, strict=True)
        ]
        bits = iter(self._bits(value.sizes, found))
        words = rounding_stream(value.context).words if self.rounding == "random" else None
        pieces = [
            Dense(one) if isinstance(one, np.ndarray) else self._rounded(tensor, one, next(bits), words)
            for (_, tensor), one in zip(value.tensors(), found, strict=True)
        ]
        return join_dense(pieces)

    def _bits(self, sizes: tuple[int, ...], found: list[Vector | Ranges]) -> list[int]:
        layers = [(size, one[1]) for size, one in zip(sizes, found, strict=True) if isinstance(one, tuple)]
        if not self.adaptive:
            return [self.bits] * len(layers)
        squares = [_square(scales, size, self.bucket) for size, scales in layers]
        return allocate([size for size, _ in layers], squares, self.bits, self.tolerance)

    def _rounded(
        self, tensor: CompensatedUpdate, ranges: Ranges, bits: int, words: Callable[[int], Words] | None
    ) -> Levels:
        offsets, scales = ranges
        levels, scale = np.empty(tensor.n, np.uint8), Scale(LINEAR, 1 << bits)
        for entries, buckets, rows in bucket_rows(tensor, self.bucket):
            drawn = words(rows.size) if words else None
            round_to_levels(rows, offsets[buckets], scales[buckets], bits, levels[entries], drawn)
            if self.scale == "minimal":
                values = scale.values()[levels[entries]].reshape(rows.shape)
                offsets[buckets], scales[buckets] = least_squares(rows, values)
        return Levels(levels, scale, scales, offsets, self.bucket)


def _ranges(tensor: CompensatedUpdate, bucket: int) -> Ranges:
    offsets, scales = np.empty((2, group_count(tensor.n, bucket)), np.float32)
    for _, buckets, rows in bucket_rows(tensor, bucket):
        offsets[buckets], scales[buckets] = row_ranges(rows)
    return offsets, scales


def _square(scales: Vector, n: int, bucket: int) -> float:
    """Return the sum of range^2 / 12 over `n` entries, each with the range of its bucket: twice the scale."""
    squares = np.square(scales, dtype=np.float64)
    return float(squares.sum() * bucket - squares[-1] * (scales.size * bucket - n)) / 3


def row_ranges(rows: Vector) -> tuple[Vector, Vector]:
    """Return (offsets, scales) of the rows: the middle of each row's range, and half of the range's width."""
    return midpoints(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))


def least_squares(rows: Vector, values: Vector) -> tuple[Vector, Vector]:
    """Return for each row the (offset, scale) with the least squared error of offset + scale `values`; scales are >= 0."""
    wide, positions = rows.astype(np.float64), values.astype(np.float64)
    means, centers = wide.mean(axis=1), positions.mean(axis=1)
    positions -= centers[:, None]
    products, squares = (positions * wide).sum(axis=1), np.square(positions).sum(axis=1)
    slopes = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    slopes = np.clip(slopes, 0, MAX_FLOAT32)
    offsets = np.clip(means - slopes * centers, -MAX_FLOAT32, MAX_FLOAT32).astype(np.float32)
    return offsets, scales_within_float32(slopes, offsets)


def round_to_levels(
    rows: Vector, offsets: Vector, scales: Vector, bits: int, out: NDArray[np.uint8], words: Words | None = None
) -> None:
    """Write the nearest level of each entry into `out`; with random `words`, one of the two next levels, without bias."""
    # From the middle of the range: the distance from its least entry to its largest may exceed float32.
    found = ratios(rows - offsets[:, None], scales)
    found *= np.float32(0.5)
    found += np.float32(0.5)
    np.clip(found, 0, 1, out=found)
    if words is not None:
        out[...] = round_at_random(found, (1 << bits) - 1, words)
        return
    found *= np.float32((1 << bits) - 1)
    np.add(found, np.float32(0.5), out=out, casting="unsafe")


def rounding_error(square: float, bits: int) -> float:
    """Return the squared error of rounding to 2^bits levels: `square` / (2^bits - 1)^2.

    `square` is the sum of range^2 / 12 over a layer's entries, each with the range of its bucket.  This is the error of
    entries that are spread evenly between two levels.
    """
    return square / ((1 << bits) - 1) ** 2


def least_tolerance(bits: int) -> float:
    """Return the least `tolerance` that `allocate` can keep: at this tolerance, every layer has the most bits."""
    return rounding_error(1, MAX_ADAPTIVE_BITS) / rounding_error(1, bits)


def allocate(entries: Sequence[int], squares: Sequence[float], bits: int, tolerance: float) -> list[int]:
    """Return the bits of each layer, 2 to 8, with at most `tolerance` times the error of `bits` everywhere.

    In the style of the adaptive compression of CGX (Markov, Ramezanikebrya, Alistarh, Middleware 2022), with fedcomp's own
    greedy solver: all layers start at 8 bits; the layer that saves the most bits for the error that it adds loses one, as
    long as the error allows it.  The error is convex in the bits, so the steps of a layer come in order.
    `entries` and `squares` (see `rounding_error`) have one number per layer.  A `tolerance` below `least_tolerance` cannot be
    kept.
    """
    allowed = tolerance * sum(rounding_error(square, bits) for square in squares)
    chosen = [MAX_ADAPTIVE_BITS] * len(entries)
    error = sum(rounding_error(square, MAX_ADAPTIVE_BITS) for square in squares)
    steps = (
        (added / size, layer, added)
        for layer, (size, square) in enumerate(zip(entries, squares, strict=True))
        for added in (
            rounding_error(square, step - 1) - rounding_error(square, step)
            for step in range(MAX_ADAPTIVE_BITS, MIN_ADAPTIVE_BITS, -1)
        )
    )
    for _, layer, added in sorted(steps):
        if error + added <= allowed:  # if not, a smaller layer may still fit
            error += added
            chosen[layer] -= 1
    # If no step fits the remaining error, uniform bits may be fewer.
    fewer = bits * sum(entries) < sum(each * size for each, size in zip(chosen, entries, strict=True))
    return [bits] * len(entries) if tolerance >= 1 and fewer else chosen
