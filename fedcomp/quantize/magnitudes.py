"""Kept entries in cheaper values: a float format, their mean, levels with a mean each, or powers of a base."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, block_slices, check_choice, check_int, check_range
from fedcomp.errors import DivergedError
from fedcomp.quantize.buckets import natural_exponents, rounding_stream
from fedcomp.quantize.error_bound import Contracting, ErrorBound, error_bound, joint
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantized import PRECISIONS, Indices, Sparse, SparseLevels, Ternary, geometric, round_to

NATURAL = "natural"
FORMAT_ERRORS = {"fp32": 0.0, "fp16": 2.0**-20, "bf16": 2.0**-16, NATURAL: 1 / 8}
"""The largest squared error of the values in each format, as a share of the sum of their squares."""
MAX_ITERATIONS = 20  # further iterations change the squared error by less than a thousandth


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Round the entries that `selection` keeps to the format `values`.

    "fp32" changes nothing, "fp16" and "bf16" round to the nearest, "natural" to one of the two next powers of two, at random
    without bias (Horváth et al., arXiv:1905.10988, definition 1).  Entries that become zero are not sent.
    """

    selection: Quantizer[CompensatedUpdate, Sparse]
    values: str

    def __post_init__(self) -> None:
        check_choice("values", self.values, (*PRECISIONS, NATURAL))

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        sparse = self.selection.quantize(value)
        if self.values == NATURAL:
            exponents = natural_exponents(sparse.values, rounding_stream(value.context).words(sparse.values.size))
            rounded = np.copysign((exponents << np.int32(23)).view(np.float32), sparse.values)
        else:
            rounded = round_to(sparse.values, self.values)
        if rounded.all():
            return Sparse(sparse.n, sparse.indices, rounded)
        keep = np.flatnonzero(rounded)
        return Sparse(sparse.n, sparse.indices[keep], rounded[keep])

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the bound of the selection, with the error of the format."""
        return joint(error_bound(self.selection, n), FORMAT_ERRORS[self.values])


@dataclass(frozen=True, slots=True)
class Ternarize:
    """Replace the kept entries by ±mu, where mu is the mean of their magnitudes.

    Sattler et al., IEEE TNNLS 31(9), 2020, Algorithm 1.  The mean is over the kept entries only, and summed in float64.
    """

    def quantize(self, value: Sparse, /) -> Ternary:
        """Return signs and the one magnitude."""
        magnitude = mean_magnitude(value.values)
        if not magnitude > 0:  # nothing is kept, or only denormals on a processor that treats them as zeros
            return Ternary(value.n, value.indices[:0], np.empty(0, np.bool_), np.float32(0))
        return Ternary(value.n, value.indices, value.values < 0, magnitude)

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - 1 / n: one entry may be far larger than the others."""
        return Contracting(1 - 1 / n)


def mean_magnitude(values: Vector) -> np.float32:
    """Return the mean of |values|, (k,), summed in float64; 0 for none."""
    total = sum(float(np.abs(values[part]).astype(np.float64).sum()) for part in block_slices(values.size))
    magnitude = np.float32(total / max(1, values.size))
    if not np.isfinite(magnitude):
        raise DivergedError("the residual holds NaN or infinity; only a state of finite values can be encoded")
    return magnitude


@dataclass(frozen=True, slots=True)
class MagnitudeHierarchy:
    """Sort the kept magnitudes into levels of 1/2, 1/4, ... of the entries, the largest ones last.

    The top level is split again into `top_levels` of equally many entries, so that the large magnitudes are the finest.
    In the style of DHQC (Jiang, Liu, Chen, Zhou, arXiv:2212.14760), whose abstract says that the *selected* parameters are
    quantized hierarchically.  Decided here: the populations, means as centroids, ties in one level, no empty levels.
    """

    levels: int
    top_levels: int

    def __post_init__(self) -> None:
        check_int("levels", self.levels, 1, 16)
        check_int("top_levels", self.top_levels, 1, 64)

    def quantize(self, value: Sparse, /) -> SparseLevels:
        """Return the entries by level."""
        magnitude, k = np.abs(value.values), value.values.size
        tail = [k - math.ceil(k / 2**level) for level in range(1, self.levels)]
        top = k - tail[-1] if tail else k
        tail += [k - math.ceil(top * part / self.top_levels) for part in range(self.top_levels - 1, 0, -1)]
        ranks = sorted({rank for rank in tail if 0 < rank < k})
        return levels_between(value, np.unique(np.partition(magnitude, ranks)[ranks]) if ranks else magnitude[:0])

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - 1 / n, as of one level."""
        return Contracting(1 - 1 / n)


@dataclass(frozen=True, slots=True)
class LloydMagnitudes:
    """Quantize the kept entries to `bits` bits: a sign and the 2^(bits - 1) magnitudes of least squared error.

    The magnitudes are found by Lloyd's iterations (IEEE Trans. Inf. Theory 28(2), 1982) from equal populations.  SparseLoCo
    (Sarfi et al., arXiv:2508.15706) sends 2-bit values with a table of bin means; Lloyd's bins are decided here.
    """

    bits: int

    def __post_init__(self) -> None:
        check_int("bits", self.bits, 1, 8)

    def quantize(self, value: Sparse, /) -> SparseLevels:
        """Return the entries by level."""
        ascending, count = np.sort(np.abs(value.values)), 2 ** (self.bits - 1)
        sums = np.concatenate(([0.0], np.cumsum(ascending, dtype=np.float64)))
        ranks: NDArray[np.int64] = np.floor_divide(np.multiply(np.arange(1, count), ascending.size), count)  # pyright: ignore[reportUnknownArgumentType]
        for _ in range(MAX_ITERATIONS):
            ends = np.unique(np.concatenate(([0], ranks, [ascending.size])))
            means = np.diff(sums[ends]) / np.diff(ends)
            moved = np.searchsorted(ascending, (means[1:] + means[:-1]) / 2)
            if np.array_equal(moved, ranks):
                break
            ranks = moved
        return levels_between(value, np.unique(ascending[ranks[ranks < ascending.size]]))

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - 1 / n, as of one level."""
        return Contracting(1 - 1 / n)


def levels_between(value: Sparse, edges: Vector) -> SparseLevels:
    """Return the entries by level: the number of `edges`, ascending, that a magnitude reaches.  Empty levels are left out."""
    magnitude = np.abs(value.values)
    found = np.zeros(magnitude.size, np.uint8)
    for edge in edges:
        found += magnitude >= edge
    used = np.flatnonzero(np.bincount(found, minlength=edges.size + 1)) if found.size else np.empty(0, np.int64)
    means = [
        mean_magnitude(magnitude[np.flatnonzero(found == level)] if used.size > 1 else magnitude) for level in used
    ]
    renamed = found if used.size > edges.size else np.searchsorted(used, found).astype(np.uint8)
    magnitudes = np.array(means, np.float32)
    if not magnitudes.all():  # only denormals, on a processor that treats them as zeros
        return SparseLevels(value.n, value.indices[:0], np.empty(0, np.bool_), renamed[:0], magnitudes[:0])
    return SparseLevels(value.n, value.indices, value.values < 0, renamed, magnitudes)


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Replace a by ± M / base^z, with M the largest magnitude and z = round(log_base(M / |a|)); keep it if z < `levels`.

    The reciprocal mapper, the logarithm quantization and the threshold filter in the style of FastSGD (Yang, Chen, Zeng,
    Gao, arXiv:2112.04291): r = 1 / |a| is mapped to z = round(log_base(r / r_min)), r_min = 1 / M.  A kept magnitude is
    off by a factor of at most sqrt(base).  Rounding is to the nearest, so it is biased.
    """

    base: float
    levels: int

    def __post_init__(self) -> None:
        check_range("base", self.base, least=1.001, most=1024)
        check_int("levels", self.levels, 1, 256)

    def quantize(self, value: CompensatedUpdate, /) -> SparseLevels:
        """Return the kept entries by level.  Raises `ValueError` if an entry is NaN or infinite."""
        largest = np.float32(0)
        for _, block in value.blocks():
            largest = max(largest, np.abs(block).max())
        magnitudes = geometric(largest, self.base, self.levels)
        magnitudes = magnitudes[: max(1, np.count_nonzero(magnitudes))]
        # 0 if it is too small for float32: then all but zeros are kept.
        bound = np.float32(float(largest) * self.base ** (0.5 - self.levels))
        indices: list[Indices] = []
        negative: list[NDArray[np.bool_]] = []
        levels: list[NDArray[np.uint8]] = []
        for start, block in value.blocks():
            magnitude = np.abs(block)
            hits = np.flatnonzero(magnitude >= bound) if bound > 0 else np.flatnonzero(magnitude)
            distance = (math.log(largest) if largest else 0) - np.log(magnitude[hits])
            levels.append(np.clip(np.rint(distance / math.log(self.base)), 0, magnitudes.size - 1).astype(np.uint8))
            indices.append(hits + start)
            negative.append(block[hits] < 0)
        joined = np.concatenate(indices), np.concatenate(negative), np.concatenate(levels)
        return SparseLevels(value.n, *joined, magnitudes, self.base)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the bound: an entry is off by sqrt(base), or small entries are left out.  None if the bound is not below 1."""
        dropped = (n - 1) * self.base ** (1 - 2 * self.levels)
        factor = max((math.sqrt(self.base) - 1) ** 2, dropped / (1 + dropped))
        return Contracting(factor) if factor < 1 else None
