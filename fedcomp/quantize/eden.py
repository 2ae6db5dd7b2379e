"""Few bits an entry after a random rotation, which makes entries of any vector look as if drawn from N(0, 1).

The levels are then the best ones for N(0, 1), whatever the vector, and one scale a chunk is all that is sent beside them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, Vector, check_choice, check_range
from fedcomp.quantized import (
    MAX_BITS,
    MAX_GAIN,
    MAX_SCALE,
    ROTATION_BLOCK,
    WIDTH_GROUP,
    Flips,
    Rotated,
    aligned_buffer,
    centroids,
    chunk_count,
    dequantize,
    half_bits,
    power_of_two_parts,
    rotated_count,
    rotated_indices,
    times_columns,
    transform,
    wide_blocks,
)

ORDINARY = 2.0**-80, 2.0**80
"""Squared norms between these are taken as they are: no sum leaves float32, and nothing that counts underflows."""


@dataclass(frozen=True, slots=True)
class Eden:
    """Rotate each chunk at random, keep `bits` an entry, and one scale.

    One bit: Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021; other bits: Vargaftik et al.,
    "EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, section 4 and,
    for less than a bit or a fraction, section 5.  `scale` is "unbiased", |x|^2 / <c, r> for the rotated chunk r and its
    levels c, or "minimal", <c, r> / |c|^2: the least squared error, for use with error feedback.
    The unbiased scale is exactly so for a uniformly random rotation; signs and a Hadamard matrix come close where no few
    entries make up a whole chunk.
    """

    bits: float
    scale: str = "unbiased"

    def __post_init__(self) -> None:
        """Refuse more than four bits, none, and scales of other names."""
        check_range("bits", self.bits, above=0, most=MAX_BITS, what="the bits sent of an entry")
        check_choice("scale", self.scale, ("unbiased", "minimal"))

    def quantize(self, value: CompensatedUpdate, /) -> Rotated:
        """Return levels and scales.  Raises `ValueError` where an entry of the sum is NaN or infinite."""
        bits = max(float(np.float32(self.bits)), 2.0**-126)
        seed, k = value.context.seed % 2**64, rotated_count(bits, value.n)
        indices = rotated_indices(seed, value.n, k) if bits < 1 else None
        levels, scales = np.empty(k, np.uint8), np.empty(chunk_count(k), np.float32)
        size, chunk = min(ROTATION_BLOCK, k), 0
        near, far, flips = aligned_buffer(size, np.float32), aligned_buffer(size, np.float32), Flips(seed, size)
        larger = value.n / k if self.scale == "unbiased" else 1.0
        blocks = value.blocks(ROTATION_BLOCK) if indices is None else _selected(value, indices)
        for (start, block), (_, groups) in zip(blocks, wide_blocks(seed, bits, k), strict=True):
            signs = flips.draw(block.size)
            wide = None if groups is None else groups.repeat(WIDTH_GROUP)
            for part, length in power_of_two_parts(block.size):
                columns = (part.stop - part.start) // length
                energy, exponents, peaks = _load(block[part], columns, near[part], far[part])
                near[part] *= signs[part]
                rotated, spare = transform(near[part], far[part], length)
                found = levels[start + part.start : start + part.stop]
                picked = None if wide is None else wide[part]
                product, square = _quantize(rotated, spare, energy, bits, picked, found)
                scale = energy / np.where(product > 0, product, 1)
                if self.scale == "minimal":
                    scale = product / np.where(square > 0, length * square, 1)
                scale *= np.ldexp(larger * 2.0 ** half_bits(length), exponents)
                # Neither what is received nor what is then left of the entries is to leave float32.
                most = np.minimum((MAX_FLOAT32 - peaks) / MAX_GAIN, np.nextafter(MAX_SCALE, np.float32(0)))
                scales[chunk : chunk + columns] = np.minimum(scale, most)
                chunk += columns
        return Rotated(value.n, seed, bits, scales, levels, indices)


def _selected(value: CompensatedUpdate, indices: NDArray[np.int64]) -> Iterator[tuple[int, Vector]]:
    """Yield the blocks of the entries at `indices`; all entries are read first, so that none of the others is NaN."""
    values = np.empty(indices.size, np.float32)
    for start, block in value.blocks():
        first, last = np.searchsorted(indices, (start, start + block.size))
        values[first:last] = block[indices[first:last] - start]
    yield from CompensatedUpdate(values).blocks(ROTATION_BLOCK)


def _load(
    entries: Vector, columns: int, out: Vector, spare: Vector
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Write `entries` into `out`; return of each column the squared norm, the exponent, and the largest magnitude.

    A column is taken over 2 to its exponent, which is 0 where all are ordinary; the magnitudes are not looked for then.
    """
    out[...] = entries
    energy, (least, most) = _energy(out, columns, spare), ORDINARY
    if ((energy > least) & (energy < most)).all():
        return energy, np.zeros(columns, np.int32), np.zeros(columns)
    table = entries.reshape(-1, columns)
    peaks = np.abs(table).max(axis=0)
    exponents = np.frexp(peaks)[1]
    np.ldexp(table, -exponents, out=out.reshape(-1, columns))
    return _energy(out, columns, spare), exponents, peaks.astype(np.float64)


def _energy(entries: Vector, columns: int, spare: Vector) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return _column_sums(np.multiply(entries, entries, out=spare), columns)


def _column_sums(entries: Vector, columns: int) -> NDArray[np.float64]:
    table = entries.reshape(-1, columns)
    return (np.ones(len(table), np.float32) @ table).astype(np.float64)


def _quantize(
    rotated: Vector,
    spare: Vector,
    energy: NDArray[np.float64],
    bits: float,
    wide: NDArray[np.bool_] | None,
    out: NDArray[np.uint8],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Write the levels into `out`; return <c, r> and |c|^2 of each column.  `rotated` and `spare` are overwritten.

    Each r is of variance |x|^2, since the Hadamard matrix is not normalised.
    """
    columns = energy.size
    if bits <= 1:
        np.greater(rotated, 0, out=out.view(np.bool_))
        product = _column_sums(np.abs(rotated, out=spare), columns)
        return product, np.full(columns, float(rotated.size // columns))
    deviation = np.sqrt(energy)
    times_columns(rotated, np.divide(1, deviation, out=np.zeros(columns), where=deviation > 0).astype(np.float32))
    _nearest(rotated, math.floor(bits), out)
    if wide is not None:
        wider = np.empty_like(out)
        _nearest(rotated, math.floor(bits) + 1, wider)
        out += (wider - out) * wide.view(np.uint8)  # a masked copy takes fifty times as long
    dequantize(out, bits, wide, spare)
    product = _column_sums(np.multiply(rotated, spare, out=rotated), columns) * deviation
    return product, _column_sums(np.multiply(spare, spare, out=spare), columns)


def _nearest(entries: Vector, bits: int, out: NDArray[np.uint8]) -> None:
    """Write the number of the centroid next to each entry."""
    levels = centroids(bits)
    above = np.empty(entries.size, np.bool_)
    out[...] = 0
    for bound in (levels[:-1] + levels[1:]) / 2:
        out += np.greater(entries, bound, out=above).view(np.uint8)
