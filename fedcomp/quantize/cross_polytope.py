"""Less than a bit an entry after a random rotation: of each group of entries, the place and the sign of the largest one."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, RandomStream, Vector, check_choice, check_range
from fedcomp.quantize.chunk_norm import ORDINARY, column_sums, largest_scale, normalize
from fedcomp.quantize.eden import WORST_VARIANCE
from fedcomp.quantize.error_bound import Contracting, ErrorBound, Unbiased
from fedcomp.quantized import (
    MAX_CHUNK,
    MAX_LENGTH,
    MAX_SCALE,
    MIN_CHUNK,
    MIN_LENGTH,
    ROUNDING,
    CrossPolytope,
    Rotation,
    aligned_buffer,
    chunk_bits,
    group_sizes,
    half_bits,
    spread,
    spread_bits,
    transform_rows,
)

MIN_BITS, MAX_BITS = 0.002, 1.0
LENGTHS = tuple(MIN_LENGTH << power for power in range((MAX_LENGTH // MIN_LENGTH).bit_length()))
"""The lengths of chunks to choose from."""
SEGMENT = MIN_LENGTH
CHUNK_BITS = 24
"""The rate and the scale of a chunk."""
LITTLE = 0.07
"""A smaller length must have this much less error: where few entries are large, small chunks rotate less evenly."""
MANY_CHUNKS, COARSE = 32, 4
"""This many chunks take each `COARSE`-th rate only, so that neighbours have the same one and are worked on at once."""
SOLVED = 1 / 200
"""The bits of all chunks may be this share below those that are asked for."""
GUESSES, MAX_STEPS = 4, 16
"""Steps of the search for their bits: the first ones in proportion to what is left, the others by halves."""
_Symbols = tuple[int, int, NDArray[np.uint16]]
"""The size of groups, the number of their chunk, and their symbols."""
MOST_SCALE = float(MAX_SCALE) * (1 - 2**-8)
"""The largest number of bfloat16 below `MAX_SCALE`: no rounding reaches that."""
MAX_FACTOR = 72.0
"""4 (log2(2^15) + 2), and the rounding of rates: `NearestVertex.error_bound`."""


@dataclass(frozen=True, slots=True)
class NearestVertex:
    """Rotate each chunk at random, and take the nearest vertex of the cross-polytope for each group of m entries.

    That is the place of the group's largest entry, and its sign: log2(m) + 1 bits for m entries.  Vertices of cross-polytopes
    are the code of Gandikota et al., "vqSGD: Vector Quantized Stochastic Gradient Descent", AISTATS 2021, which draws them at
    random; here the nearest one is taken, and the scale of Vargaftik et al., "EDEN", ICML 2022, section 4, makes it unbiased.

    `bits` an entry are sent on average, the rates and scales of chunks included.  A chunk gets bits in proportion to its norm,
    at most one an entry: that has the least squared error, because the error of a chunk of d entries that gets b bits is close
    to d / (b 2 ln 2) times its squared norm.  So small chunks suit vectors whose norm is in few places, and large ones
    take fewer scales; of the lengths from 2^10 to 2^15, the one with the least error by this formula is taken.

    For a rotated chunk r of the entries x and its vertices c, `scale` is "unbiased", |x|^2 / <c, r>, or "minimal",
    <c, r> / |c|^2.  The latter has the least squared error, for use with error feedback.  Scales have the format bfloat16; the
    unbiased ones are rounded up or down at random.  What `Eden` says of bias holds here too.
    """

    bits: float
    scale: str = "unbiased"

    def __post_init__(self) -> None:
        check_range("bits", self.bits, least=MIN_BITS, most=MAX_BITS, what="the bits sent of an entry")
        check_choice("scale", self.scale, ("unbiased", "minimal"))

    def quantize(self, value: CompensatedUpdate, /) -> CrossPolytope:
        """Return vertices and scales.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        segments = _segment_norms(value)
        rotation = _rotation(self.bits, segments, value.context.seed % 2**64, value.n)
        norms = _chunk_norms(segments, rotation)
        rates = _rates(self.bits, norms, rotation)
        norms[(value.n - rotation.rest) // rotation.chunk :] = np.nan  # computed when the rest is shifted
        near, far = (aligned_buffer(rotation.block_size, np.float32) for _ in range(2))
        signs, scales, found = rotation.spread_signs(), np.zeros(rates.size), list[_Symbols]()
        chunk = 0
        for block in rotation.rotated(value.blocks(MAX_CHUNK), near):
            for part, count in rotation.batches(block):
                chunks = slice(chunk, chunk + count)
                scales[chunks], symbols = self._quantize(near[part], far[part], rates[chunks], norms[chunks], signs)
                found += [(size, chunk + column, each) for size, column, each in symbols]
                chunk += count
        rounded = _as_bfloat16(scales, rotation.seed if self.scale == "unbiased" else None)
        found.sort(key=lambda each: each[:2])
        kept = [each for _, chunk, each in found if rounded[chunk]]
        return CrossPolytope(rotation, rates, rounded, np.concatenate(kept) if kept else np.empty(0, np.uint16))

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the variance w, or for the scale "minimal" the factor w / (1 + w).

        The largest entry of a group of m is at least the mean of its magnitudes, so 1 + w is at most m times that of one
        bit an entry (`Eden`).  Where all rotated entries have the same magnitude, it is m; usually it is far less.  With
        a share f of the entries in groups of 2 m, it is at most 2 m (2 - f) times as much: (2 - f)^2 (log2(m) + 2) over
        the bits an entry.  Bits in proportion to norms do not raise the sum over all chunks.  A short vector may have few
        rotations: then the scale "unbiased" has no bound.
        """
        variance = (1 + WORST_VARIANCE) * min(MAX_FACTOR / self.bits, 2 * MAX_LENGTH) - 1
        if self.scale == "minimal":
            return Contracting(variance / (1 + variance))
        return Unbiased(variance) if n >= MIN_CHUNK else None

    def contracting(self) -> "NearestVertex":
        """Return the quantizer with the scale of least error."""
        return replace(self, scale="minimal")

    def _quantize(
        self, entries: Vector, spare: Vector, rates: NDArray[np.uint8], norms: NDArray[np.float64], signs: Vector
    ) -> tuple[NDArray[np.float64], list[_Symbols]]:
        """Return the scales of some chunks, and their symbols: (size of the groups, number of the chunk, symbols).

        `entries` and `spare` are overwritten.
        """
        count = rates.size
        d = entries.size // count
        energies, exponents, most = norms.copy(), np.zeros(count, np.int64), np.full(count, largest_scale(0))
        for chunk in np.flatnonzero(~_ordinary(norms)).tolist():
            row = slice(chunk * d, (chunk + 1) * d)
            energies[chunk], exponents[chunk], peak = normalize(entries[row], spare[:d])
            most[chunk] = largest_scale(peak)
        entries, spare = spread(entries, spare, d)
        rows = entries.reshape(count, d)
        rows *= signs[:d]
        rotated, _ = transform_rows(entries, spare, count)
        matrix, symbols = rotated.reshape(d, count), list[_Symbols]()
        products, groups_of = np.zeros(count), np.ones(count)
        for rate in np.unique(rates).tolist():
            chunks = np.flatnonzero(rates == rate)
            mine = matrix if chunks.size == count else matrix[:, chunks]
            first = 0
            for size, groups in group_sizes(d, rate):
                if groups:
                    found, magnitudes = _largest(mine[first : first + size * groups], groups)
                    symbols += [(size, chunk, each) for chunk, each in zip(chunks.tolist(), found.T, strict=True)]
                    products[chunks] += column_sums(magnitudes)
                    first += size * groups
            groups_of[chunks] = sum(groups for _, groups in group_sizes(d, rate))
        sent = products > 0
        products[~sent] = 1
        scales = energies / products if self.scale == "unbiased" else products / ((d << spread_bits(d)) * groups_of)
        scales = np.minimum(np.ldexp(scales, half_bits(d << spread_bits(d)) + exponents), most)
        return np.where(sent, scales, 0), symbols


def _ordinary(norms: NDArray[np.float64]) -> NDArray[np.bool_]:
    least, most = ORDINARY
    return (norms > least) & (norms < most)


def _segment_norms(value: CompensatedUpdate) -> NDArray[np.float64]:
    """Return the squared norm of each `SEGMENT` of neighbours, of any magnitude; the last one may be shorter."""
    norms: list[NDArray[np.float64]] = []
    spare = np.zeros(MAX_CHUNK, np.float32)
    for _, entries in value.blocks(MAX_CHUNK):
        used = -(-entries.size // SEGMENT) * SEGMENT
        squares = spare[:used]
        squares[entries.size :] = 0
        with np.errstate(over="ignore"):
            np.multiply(entries, entries, out=squares[: entries.size])
            found = column_sums(squares.reshape(-1, SEGMENT).T)
        if not _ordinary(found).all():
            wide = np.zeros(used)
            wide[: entries.size] = entries
            found = column_sums((wide * wide).reshape(-1, SEGMENT).T)
        norms.append(found)
    return np.concatenate(norms)


def _chunk_norms(segments: NDArray[np.float64], rotation: Rotation) -> NDArray[np.float64]:
    """Return the squared norm of each chunk; that of the rest, in whose chunks the entries are shifted, in equal shares."""
    sizes, whole = rotation.chunk_sizes(), (rotation.n - rotation.rest) // SEGMENT
    chunks = column_sums(segments[:whole].reshape(-1, rotation.chunk // SEGMENT).T)
    rest = sizes[chunks.size :]
    return np.concatenate((chunks, column_sums(segments[whole:, None]) * rest / rest.sum()))


def _rotation(bits: float, segments: NDArray[np.float64], seed: int, n: int) -> Rotation:
    """Return the rotation in chunks of the length with the least error, or a larger one with little more."""
    best, least = Rotation(seed, n, MAX_LENGTH), math.inf
    for chunk in reversed(LENGTHS):
        if n < 2 * chunk < 2 * MAX_LENGTH:
            continue  # the whole vector is a rest, as it is with MAX_LENGTH
        rotation = Rotation(seed, n, chunk)
        error = _expected_error(bits, segments, rotation)
        if error < (1 - LITTLE) * least:
            best, least = rotation, error
    return best


def _expected_error(bits: float, segments: NDArray[np.float64], rotation: Rotation) -> float:
    """Return the error, but for a factor, if chunks get bits in proportion to their norms; infinity if there are too few."""
    budget = bits * rotation.n - CHUNK_BITS * rotation.num_chunks
    norm = math.fsum(np.sqrt(_chunk_norms(segments, rotation) * rotation.chunk_sizes()).tolist())
    return norm**2 / budget if budget > 0 else math.inf


def _rates(bits: float, norms: NDArray[np.float64], rotation: Rotation) -> NDArray[np.uint8]:
    """Return the rates of the chunks: bits in proportion to their norms, in all at most `bits` an entry if that is possible."""
    sizes = rotation.chunk_sizes()
    step = 1 if sizes.size < MANY_CHUNKS else COARSE
    known = chunk_bits(rotation.chunk)[::step] / rotation.chunk
    edges, chunks = -(known[1:] + known[:-1]) / 2, np.arange(sizes.size)
    tables = {d: chunk_bits(d)[::step] for d in set(sizes.tolist())}
    bits_of = np.stack([tables[d] for d in sizes.tolist()])
    budget = bits * rotation.n - CHUNK_BITS * sizes.size
    wanted = np.sqrt(norms / sizes)
    low, high, factor = 0.0, math.inf, max(budget, 1.0) / (math.fsum((wanted * sizes).tolist()) or 1.0)
    rates = np.full(sizes.size, known.size - 1)
    for attempt in range(MAX_STEPS):
        found = np.searchsorted(edges, -factor * wanted)
        taken = bits_of[chunks, found]
        total, full = int(taken.sum()), int(taken[found == 0].sum())
        if total > budget:
            high = factor
        else:
            low, rates = factor, found
            if total >= (1 - SOLVED) * budget or not found.any():
                break
        nearer = factor * (budget - full) / (total - full) if full < min(total, budget) else 0.0
        guess = attempt < GUESSES and low < nearer < high
        factor = nearer if guess else 2 * low if high == math.inf else (low + high) / 2
    return (step * rates).astype(np.uint8)


def _largest(entries: Vector, groups: int) -> tuple[NDArray[np.uint16], Vector]:
    """Return the symbols of all groups in a matrix of chunks, and the magnitudes of their largest entries, (groups, chunks).

    A chunk is a column, and its groups are the columns of a matrix again.  The last bits of a magnitude give way to the place,
    so that one maximum finds both; entries that differ in these bits alone count as equal.
    """
    columns: int = groups * entries.shape[1]
    bits = entries.view(np.int32).reshape(-1, columns)
    size = len(bits)
    keys = bits & np.int32(0x7FFFFFFF & -size)
    keys |= np.arange(size, dtype=np.int32)[:, None]
    place: NDArray[np.int64] = (np.maximum.reduce(keys, axis=0) & np.int32(size - 1)).astype(np.int64)
    largest: Vector = np.take(entries, place * columns + np.arange(columns))
    symbols = place.astype(np.uint16)
    symbols <<= 1
    symbols |= np.signbit(largest)
    return symbols.reshape(groups, -1), np.abs(largest, out=largest).reshape(groups, -1)


def _as_bfloat16(scales: NDArray[np.float64], seed: int | None) -> Vector:
    """Return the scales with the 8 bits of bfloat16, rounded to the nearest, or at random and unbiased by `seed`."""
    words = np.minimum(scales, MOST_SCALE).astype(np.float32).view(np.uint32)
    if seed is None:
        words += np.uint32(1 << 15)
    else:
        halves = RandomStream(seed, ROUNDING).words(-(-scales.size // 2)).astype("<u4", copy=False).view("<u2")
        words += halves[: scales.size]
    words &= np.uint32(0xFFFF0000)
    return words.view(np.float32)
