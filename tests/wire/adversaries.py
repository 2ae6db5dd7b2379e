"""Valid bodies that take long to decode for their entries, in forms that no honest sender chooses; and forbidden ones.

Each maker draws a body for a model of `n` entries, in the tensors of `specimens.world`, from a random number generator.
`MAKERS` are those of valid bodies, `FORBIDDEN` those of bodies that would hold a receiver up, and that it refuses.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from random import Random
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing, prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.cross_polytope_code import CrossPolytopeCode
from fedcomp.entropy.bodies.dense import TENSORS
from fedcomp.entropy.bodies.golomb import ROUNDING, rice_parameter, write_head
from fedcomp.entropy.bodies.sparse import LISTED, SEED
from fedcomp.entropy.bodies.steps_code import LENGTHS
from fedcomp.entropy.codes import alphabet, gamma, gamma_positions, plain_alphabet, positions, values
from fedcomp.entropy.codes.delta_keys import MAX_GAP_BITS, DeltaKeys
from fedcomp.entropy.codes.golomb_positions import CHUNK_GAPS, GolombPositions, max_remainder_bits, runs_of
from fedcomp.quantized import (
    LINEAR,
    MAX_RANK,
    MAX_RATE,
    MIN_LENGTH,
    CrossPolytope,
    Indices,
    Rotation,
    Ternary,
    count_symbols,
    worthwhile,
)
from tests.wire.specimens import Body

Maker = Callable[[Random, int], Body]
ONE = np.float32(1e-3)
SMALL = 1e-5
"""Factors of products: the sum of many stays small."""


# ---- streams ----------------------------------------------------------------------------------------------------------


def _indices(rng: Random, n: int) -> Indices:
    """Return all indices, or a random share of them."""
    share = rng.choice((1.0, 1.0, 0.5, 0.1, 0.01))
    return np.union1d(n - 1, np.flatnonzero(np.random.default_rng(rng.randrange(2**32)).random(n) < share))


def _golomb(rng: Random, indices: Indices, n: int) -> bytes:
    """Return positions in Golomb code whose parameters differ from chunk to chunk, or are all 0."""
    runs, k = runs_of(indices, n), indices.size
    most = rng.choice((0, 1, 3, 8, 31))
    rice = np.random.default_rng(rng.randrange(2**32)).integers(0, most + 1, len(runs))
    while CHUNK_GAPS * int(rice.sum()) > max_remainder_bits(n, k):
        rice[rng.randrange(rice.size)] = 0
    quotients = int((runs >> rice.astype(np.uint32)[:, None]).ravel()[:k].sum(dtype=np.int64))
    return b"".join(GolombPositions(runs, k, rice, quotients).write())


def _gaps(rng: Random, n: int) -> NDArray[np.int64]:
    """Return gaps of 1, and one of each other length that there can be, in random order."""
    longest = max(1, (n // 4).bit_length() - 1)
    long = 1 << np.arange(longest)
    gaps = np.ones(max(1, n - int(long.sum())), np.int64)
    gaps[: min(gaps.size, longest)] = long[: gaps.size]
    np.random.default_rng(rng.randrange(2**32)).shuffle(gaps)
    return gaps


def _delta_keys(rng: Random, n: int) -> tuple[Indices, bytes]:
    """Return indices with gaps of many lengths, and their delta keys in groups of few bits."""
    gaps = _gaps(rng, n)
    lengths = np.frexp(gaps)[1].astype(np.uint8)  # in bits
    width = rng.choice((1, 1, 2, 3, 16))
    counts = np.bincount(-(-lengths.astype(np.int64) // width), minlength=-(-MAX_GAP_BITS // width) + 1)
    return np.cumsum(gaps) - 1, b"".join(DeltaKeys((gaps - 1).astype(np.uint32), lengths, width, counts).write())


def _gamma(rng: Random, n: int) -> tuple[Indices, bytes]:
    """Return indices with gaps of many lengths, and their gamma codes, the lengths in any code."""
    gaps = _gaps(rng, n).astype(np.uint32)
    lengths = gamma.lengths_of(gaps)
    counts = plain_alphabet.histogram(lengths, gamma_positions.BOUND)
    plans = [plain_alphabet.fixed(counts)]
    if (used := int(np.count_nonzero(counts))) > 1:
        plans += [plain_alphabet.coded(counts, length) for length in (1, packing.max_digits(used))]
    stream = b"".join(rng.choice(plans).write(lengths))
    return np.cumsum(gaps.astype(np.int64)) - 1, stream + b"".join(gamma.write_low_bits(gaps, lengths))


def _positions(rng: Random, n: int) -> tuple[Indices, bytes]:
    kind = rng.choice((positions.DELTA, positions.GAMMA, positions.GOLOMB))
    if kind != positions.GOLOMB:
        indices, stream = (_delta_keys if kind == positions.DELTA else _gamma)(rng, n)
        return indices, bytes([kind]) + stream
    indices = _indices(rng, n)
    return indices, bytes([positions.GOLOMB]) + _golomb(rng, indices, n)


def _symbols(rng: Random, count: int, bound: int, most: int = 512) -> bytes:
    """Return symbols below `bound` of which two are frequent and all below `most`, in a mode that may not be the smallest."""
    draws = np.random.default_rng(rng.randrange(2**32))
    rare = draws.random(count) < rng.choice((0.0, 1e-4, 0.01, 0.3))
    symbols = np.where(rare, draws.integers(0, min(bound, most), count), draws.integers(0, 2, count))
    symbols[: min(2, count)] = [0, 1][:count]
    symbols = symbols.astype(np.uint8 if bound <= 256 else np.uint16)
    counts = plain_alphabet.histogram(symbols, bound)
    used = int(np.count_nonzero(counts))
    plans = [partial(plain_alphabet.coded, counts, 1)] if used > 1 else [partial(plain_alphabet.fixed, counts)]
    plans += [
        partial(alphabet.common, counts, 1 << width)
        for width in range((used - 1).bit_length())
        if 2 * int(np.sort(counts)[: -(1 << width)].sum()) <= count
    ]
    with mock.patch.object(plain_alphabet, "plan", _longest):
        return b"".join(rng.choice(plans)().write(symbols))


def _longest(counts: NDArray[np.int64]) -> plain_alphabet.SymbolWriter:
    """Return the Huffman code of single symbols, if there are two or more."""
    return plain_alphabet.coded(counts, 1) if np.count_nonzero(counts) > 1 else plain_alphabet.fixed(counts)


def _natural(rng: Random, k: int) -> bytes:
    """Return `k` values that are powers of two, their exponents as symbols."""
    signs = np.packbits(np.random.default_rng(rng.randrange(2**32)).random(k) < 0.5).tobytes()
    return bytes([values.NATURAL]) + signs + _symbols(rng, k, values.EXPONENTS, 120)


# ---- bodies -----------------------------------------------------------------------------------------------------------


def ternary(rng: Random, n: int) -> Body:
    """Return codec 2 with Golomb parameters that fit no chunk."""
    indices = _indices(rng, n)
    value = Ternary(n, indices, np.zeros(indices.size, np.bool_), ONE)
    return 2, write_head(value) + _golomb(rng, indices, n) + np.packbits(value.negative).tobytes()


def ternary_positions(rng: Random, n: int) -> Body:
    """Return codec 12 with positions in a code that may not be the smallest."""
    indices, stream = _positions(rng, n)
    value = Ternary(n, indices, np.zeros(indices.size, np.bool_), ONE)
    return 12, write_head(value) + stream + np.packbits(value.negative).tobytes()


def interleaved(rng: Random, n: int) -> Body:
    """Return codec 3 with long remainders of zeros, or long quotients."""
    indices = _indices(rng, n)
    k = indices.size
    rice = rng.choice((0, rice_parameter(k / n) + ROUNDING))
    runs = runs_of(indices, n).ravel()[:k].astype(np.int64)
    ends = np.cumsum((runs >> rice) + (rice + 2))
    stream = np.ones(int(ends[-1]), np.uint8)
    stream[ends - (rice + 2)] = 0
    for place in range(rice):
        stream[ends - 2 - place] = runs >> place & 1
    stream[ends - 1] = 0
    value = Ternary(n, indices, np.zeros(k, np.bool_), ONE)
    return 3, write_head(value) + bytes([rice]) + np.packbits(stream).tobytes()


def sparse_values(rng: Random, n: int) -> Body:
    """Return codec 4 with positions and values in slow forms."""
    indices, stream = _positions(rng, n)
    return 4, head.write(n, indices.size) + stream + _natural(rng, indices.size)


def sparse_levels(rng: Random, n: int) -> Body:
    """Return codec 5 with positions and levels in slow forms."""
    indices, stream = _positions(rng, n)
    count, k = rng.choice((2, 256)), indices.size
    magnitudes = bytes([LISTED, count - 1]) + np.full(count, ONE, "<f4").tobytes()
    signs = bytes(-(-k // 8))
    return 5, head.write(n, k) + magnitudes + stream + signs + _symbols(rng, k, count)


def seeded(rng: Random, n: int) -> Body:
    """Return codec 6 with values in a slow form."""
    k = rng.choice((1, max(1, n // 2), n))
    return 6, head.write(n, k) + SEED.pack(rng.randrange(2**64)) + _natural(rng, k)


def levels(rng: Random, n: int, tensors: int = 3) -> Body:
    """Return codec 7 with levels in a slow form, in buckets of one entry or of all, or in groups that are `tensors`."""
    count, tensors = rng.choice((2, 256, 511)), min(tensors, n)
    groups, sizes = rng.choice((([1], n), ([n], 1), ([tensors, *[1] * (tensors - 1), n - tensors + 1], tensors)))
    kind = LINEAR | (TENSORS if len(groups) > 1 else 0)
    begin = write_varint(n) + bytes([kind]) + b"".join(map(write_varint, (count, *groups)))
    return 7, begin + np.full(sizes, ONE, "<f4").tobytes() + _symbols(rng, n, count)


def low_rank(rng: Random, n: int) -> Body:
    """Return codec 9 with a matrix of the largest rank, or of few columns."""
    rows, columns = rng.choice(((int(n**0.5), int(n**0.5)), (n // 3, 3), (3, n // 3), (n // 5, 5)))
    rank = MAX_RANK
    while rank and not worthwhile(rows, columns, rank):
        rank -= 1
    if not rank:
        return 9, head.write(n, 1) + bytes([0]) + write_varint(n) + bytes(4 * n)
    rest = n - rows * columns
    table = [write_varint(rank), write_varint(rows), write_varint(columns)]
    table += [b"\0", write_varint(rest)] if rest else []
    numbers = np.full(rank * (rows + columns) + rest, SMALL, "<f4")
    return 9, head.write(n, 2 if rest else 1) + b"".join(table) + numbers.tobytes()


def pieces(rng: Random, n: int, count: int = 3) -> Body:
    """Return codec 10 in pieces of levels, each in a slow form."""
    sizes = [n // count] * (min(count, n) - 1)
    sizes.append(n - sum(sizes))
    rows, bodies = [write_varint(len(sizes))], []
    for size in sizes:
        body = levels(rng, size, 1)[1]
        rows.append(bytes([1]) + write_varint(size) + write_varint(len(body)))
        bodies.append(body)
    return 10, b"".join(rows + bodies)


def steps(rng: Random, n: int) -> Body:
    """Return codec 11 with positions and lengths in slow forms, and counts of many lengths."""
    indices, stream = _positions(rng, n)
    symbols = _symbols(rng, indices.size, LENGTHS, rng.choice((2, 8, LENGTHS)))
    lengths = alphabet.read(ByteReader(symbols), indices.size, LENGTHS)
    low_bits = bytes(gamma.low_bytes(plain_alphabet.histogram(lengths, LENGTHS)))
    signs = bytes(-(-indices.size // 8))
    return 11, head.write(n, indices.size) + b"\0" + stream + signs + symbols + low_bits


def cross_polytope(rng: Random, n: int) -> Body:
    """Return codec 14 in the shortest chunks, each with a rate of its own."""
    rotation = Rotation(rng.randrange(2**64), n, MIN_LENGTH)
    draws = np.random.default_rng(rng.randrange(2**32))
    least, most = rng.choice(((0, MAX_RATE), (0, MAX_RATE), (0, 1), (1, 15), (MAX_RATE, MAX_RATE)))
    rates = draws.integers(least, most + 1, rotation.num_chunks).astype(np.uint8)
    scales = np.full(rotation.num_chunks, 2.0**-10, np.float32)  # its lower half is zero, as that of all scales
    counts = count_symbols(rotation, rates, scales)
    symbols = np.concatenate([draws.integers(0, 2 * size, count) for size, count in counts.items()]).astype(np.uint16)
    return 14, CrossPolytopeCode().encode(CrossPolytope(rotation, rates, scales, symbols))


MAKERS: tuple[Maker, ...] = (
    ternary,
    ternary_positions,
    interleaved,
    sparse_values,
    sparse_levels,
    seeded,
    levels,
    low_rank,
    pieces,
    steps,
    cross_polytope,
)


def many_tensors(rng: Random, n: int) -> Body:
    """Return codec 7, alone or as a piece of codec 10, with groups that are more tensors than the model has."""
    tensors = rng.choice((4, n // 8, n))
    begin = (
        write_varint(n) + bytes([LINEAR | TENSORS]) + b"".join(map(write_varint, (2, tensors, *[1] * (tensors - 1))))
    )
    body = begin + write_varint(n - tensors + 1) + np.full(tensors, ONE, "<f4").tobytes() + _symbols(rng, n, 2)
    return rng.choice(((7, body), (10, b"\1\1" + write_varint(n) + write_varint(len(body)) + body)))


def many_pieces(rng: Random, n: int) -> Body:
    """Return codec 10 in more pieces than the model has tensors."""
    return pieces(rng, n, rng.choice((4, max(4, n // 200))))


def long_chunks(rng: Random, n: int) -> Body:
    """Return codec 6 with few values in one chunk of 2^11: a step for each takes as long as it would for many chunks."""
    k = min(n, rng.randrange(1000, 2048))
    exponents = (np.arange(k) % 2).astype(np.uint8)
    with mock.patch.object(prefix_stream, "_chunk_log", return_value=prefix_stream.MAX_CHUNK_LOG):
        symbols = b"".join(
            plain_alphabet.coded(plain_alphabet.histogram(exponents, values.EXPONENTS), 1).write(exponents)
        )
    return 6, head.write(n, k) + SEED.pack(0) + bytes([values.NATURAL]) + bytes(-(-k // 8)) + symbols


def high_rank(rng: Random, n: int) -> Body:
    """Return codec 9 with a rank that is worthwhile but too high."""
    side = int(n**0.5)
    rank = rng.randrange(MAX_RANK + 1, max(MAX_RANK + 2, side // 2))
    table = write_varint(rank) + write_varint(side) * 2
    return 9, head.write(n, 1) + table + np.full(2 * rank * side, SMALL, "<f4").tobytes()


def mixed_remainders(rng: Random, n: int) -> Body:
    """Return codec 2 with a remainder of several bits for each entry, though all entries are kept."""
    runs = runs_of(np.arange(n), n)
    rice = np.full(len(runs), rng.randrange(3, 32))
    stream = b"".join(GolombPositions(runs, n, rice, 0).write())
    return 2, write_head(Ternary(n, np.arange(n), np.zeros(n, np.bool_), ONE)) + stream + bytes(-(-n // 8))


FORBIDDEN: tuple[Maker, ...] = (many_tensors, many_pieces, long_chunks, high_rank, mixed_remainders)
DRAWS = 32
"""Bodies of each maker that `body` knows."""


@lru_cache(maxsize=512)
def body(n: int, number: int) -> Body:
    """Return body `number`, from 0 up, of all makers in turn: the same on every run."""
    makers = (*MAKERS, *FORBIDDEN)
    return makers[number % len(makers)](Random(number), n)


def count() -> int:
    """Return how many bodies `body` knows."""
    return DRAWS * len((*MAKERS, *FORBIDDEN))
