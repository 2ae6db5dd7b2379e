"""Each matrix as the product of two thin ones, by one step of the power iteration that starts from the last result."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Hint, RandomStream, RightFactors, Shapes, Vector, check_int
from fedcomp.quantize.error_bound import Contracting, ErrorBound
from fedcomp.quantized import MAX_PRODUCT, MAX_RANK, Dense, Matrix, Product, Segments, join_dense, worthwhile

MAX_EXPONENT = 40
"""Matrices whose largest product with the start is within 2^±40 are not scaled; others are divided by a power of two."""
MAX_UNBALANCED = 60
"""Right factors within 2^±60 are sent unchanged; larger or smaller ones share a power of two with the left factors."""
WEAK = 1e-6
"""Start rows below this fraction of the largest norm are replaced."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """P = M Q, its columns made orthonormal; then Q = M^T P; the receiver sees P Q^T, of rank `rank`.

    Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
    NeurIPS 2019, Algorithm 1, in one phase: each sender sends both factors of its own matrix, and the receiver adds the
    products.  The paper's workers agree on one P and one Q in two phases; a round of federated learning has only one phase.

    A tensor of two dimensions or more becomes a matrix, (first dimension, the others), and is compressed if the factors have
    fewer numbers.  Other tensors are sent unchanged.  A vector of unknown shapes becomes the squarest matrix that holds it.
    Q starts from the right factors of the last message, the sum's `hint`, or from random numbers if these do not fit.
    """

    rank: int

    def __post_init__(self) -> None:
        check_int("rank", self.rank, 1, MAX_RANK)

    def quantize(self, value: CompensatedUpdate, /) -> Segments:
        """Return the factors.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        shapes = value.context.shapes
        sums = value.tensors() if shapes else [(0, value)]
        folded = list(_folded(shapes, value.n, self.rank))
        hint = _fitting(value.hint, self.rank * sum(sides[1] for sides in folded if sides))
        draws = RandomStream(value.context.seed % 2**64)
        parts: list[Product | Dense] = []
        offset = 0
        for (_, tensor), sides in zip(sums, folded, strict=True):
            if sides is None:
                parts.append(Dense(tensor.dense()))
                continue
            size = self.rank * sides[1]
            last = None if hint is None else hint[offset : offset + size].reshape(self.rank, -1)
            offset += size
            parts.append(_factors(tensor, sides, _start(last, _noise(draws, size).reshape(self.rank, -1))))
        return join_dense(parts)

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - 1 / (2 sqrt(n)) of the first message: a random start favours no direction of the matrix."""
        return Contracting(1 - 1 / (2 * math.sqrt(n)))


def _folded(shapes: Shapes, n: int, rank: int) -> Iterator[tuple[int, int] | None]:
    """Yield the sides of each tensor that has entries as a matrix; None for a tensor that is sent unchanged."""
    if not shapes:
        columns = math.isqrt(n - 1) + 1
        rows = -(-n // columns)
        yield (rows, columns) if rank * (rows + columns) < n else None
    for shape in shapes:
        size = math.prod(shape)
        if size:
            sides = (shape[0], size // shape[0]) if len(shape) > 1 else (1, size)
            yield sides if worthwhile(*sides, rank) else None


def _fitting(hint: Hint | None, size: int) -> Vector | None:
    """Return the right factors of the last message, if there are `size` of them and all are finite."""
    if not isinstance(hint, RightFactors) or hint.values.shape != (size,) or hint.values.dtype != np.float32:
        return None
    return hint.values if np.isfinite(hint.values).all() else None


def _noise(draws: RandomStream, count: int) -> NDArray[np.float64]:
    """Return random numbers, roughly normal around zero."""
    return np.add.reduce(draws.uniform(4 * count).astype(np.float64).reshape(4, -1)) - 2.0  # type: ignore[no-any-return]


def _start(last: Matrix | None, fresh: NDArray[np.float64]) -> Matrix:
    """Return columns of norm 1, float32 (columns, rank): the `last` rows, or `fresh` ones in place of weak ones.

    A row of zeros, left by a matrix of lower rank, would always stay zero.
    """
    rows = fresh if last is None else last.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    for row in np.flatnonzero(norms <= WEAK * norms.max()):
        rows[row] = fresh[row]
        norms[row] = np.linalg.norm(fresh[row])
    rows /= norms[:, None]
    return np.ascontiguousarray(rows.T, np.float32)


def _factors(tensor: CompensatedUpdate, sides: tuple[int, int], start: Matrix) -> Product:
    """Return the factors that one step gives from `start`."""
    exponent = 0
    left, peak = _times(tensor, sides, start, exponent)
    if peak and abs(math.frexp(peak)[1]) > MAX_EXPONENT:
        exponent = math.frexp(peak)[1]
        left, _ = _times(tensor, sides, start, exponent)
    basis = np.linalg.qr(left)[0].astype(np.float32)
    right = np.zeros((sides[1], basis.shape[1]))
    for row, block in _rows(tensor, sides, exponent):
        right += block.T @ basis[row : row + len(block)]
    return _within_float32(tensor.n, basis, right, exponent, peak)


def _within_float32(n: int, basis: Matrix, right: NDArray[np.float64], exponent: int, peak: float) -> Product:
    """Return the product of `basis` and `right` times 2 to the `exponent`, for a matrix with entries up to `peak`.

    If the product is near the end of float32's range, both factors are scaled towards the middle of the range.  Neither the
    product nor the matrix minus the product may leave float32.
    """
    size = math.frexp(float(np.abs(right).max()))[1] + exponent
    shift = size // 2 if abs(size) > MAX_UNBALANCED else 0
    left = np.ascontiguousarray(np.ldexp(basis, shift).T)
    right = np.ldexp(right, exponent - shift).T
    product = Product(n, left, np.ascontiguousarray(right, np.float32))
    room = max(0.0, MAX_PRODUCT - peak)
    if product.bound <= room:
        return product
    return Product(n, left, np.ascontiguousarray(right * (room / product.bound * (1 - WEAK)), np.float32))


def _times(
    tensor: CompensatedUpdate, sides: tuple[int, int], start: Matrix, exponent: int
) -> tuple[NDArray[np.float64], float]:
    """Return the matrix divided by 2 to the `exponent` times `start`, and the largest magnitude of the matrix.

    The product is in float64: if its columns are nearly parallel, float32's rounding would decide their difference.
    """
    product, peak = np.empty((sides[0], start.shape[1])), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for row, block in _rows(tensor, sides, exponent):
            product[row : row + len(block)] = block.astype(np.float64) @ start
            peak = max(peak, float(block.max()), -float(block.min()))
    return product, peak


def _rows(tensor: CompensatedUpdate, sides: tuple[int, int], exponent: int) -> Iterator[tuple[int, Matrix]]:
    """Yield (number of the first row, rows divided by 2 to the `exponent`); the last row is padded with zeros."""
    columns = sides[1]
    for start, block in tensor.blocks(max(1, BLOCK_ENTRIES // columns) * columns):
        if block.size % columns:
            block = np.concatenate((block, np.zeros(-block.size % columns, np.float32)))
        matrix = block.reshape(-1, columns)
        yield start // columns, np.ldexp(matrix, -exponent) if exponent else matrix
