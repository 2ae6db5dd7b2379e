"""The contracting form of a quantizer: with the scale of least error, the error is never longer than the vector."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize.error_bound import (
    MANY,
    Bounded,
    Contractible,
    Contracting,
    ErrorBound,
    Unbiased,
    error_bound,
    squared_error,
)
from fedcomp.quantize.protocol import Quantizer
from fedcomp.quantized import QuantizedVector

SMALL_VARIANCE = 0.5
"""Unbiased quantizers of a smaller variance are used unchanged: they contract, and another scale gains little."""
MEASURED_SIZES = (1, 2, 31, 1000)
MEASURED_SEEDS = 16


@dataclass(frozen=True, slots=True)
class LeastError:
    """`quantizer`, with its input v scaled by <v, C(v)> / ||C(v)||^2, so that the error is least.

    The scale 1 / (1 + w) makes an unbiased quantizer of variance w contract (Koloskova, Stich and Jaggi, ICML 2019, section
    3.5), with the factor w / (1 + w).  This scale is measured on each vector, and no other scale has less error.
    """

    quantizer: Quantizer[CompensatedUpdate, Any]

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound w / (1 + w); 1 - 1 / n for a quantizer that keeps the signs and the largest entry."""
        bound = error_bound(self.quantizer, n)
        return Contracting(bound.variance / (1 + bound.variance) if isinstance(bound, Unbiased) else 1 - 1 / n)

    def quantize(self, value: CompensatedUpdate, /) -> QuantizedVector:
        """Return the quantized vector.  Raises `ValueError` as the quantizer does."""
        value.in_place = False  # it is read several times
        quantized: QuantizedVector = self.quantizer.quantize(value)
        result = quantized.dense()
        product = square = peak = 0.0
        for start, block in value.blocks():
            part = result[start : start + block.size].astype(np.float64)
            product, square = product + float(part @ block), square + float(part @ part)
            peak = max(peak, float(block.max()), -float(block.min()))
        if not square or product == square:
            return quantized
        scale = min(max(product / square, 0.0), MAX_FLOAT32 / peak)
        scaled: QuantizedVector = self.quantizer.quantize(value.scaled(scale))
        return scaled


def contracting(quantizer: Quantizer[CompensatedUpdate, Any]) -> Quantizer[CompensatedUpdate, Any] | None:
    """Return the form of `quantizer` that contracts: itself if it does, or None if there is no such form.

    A quantizer that declares no bound is measured with the scale of least error.
    """
    if isinstance(quantizer, Contractible):
        return quantizer.contracting()  # type: ignore[no-any-return]
    bound = error_bound(quantizer, MANY)
    if isinstance(bound, Contracting) or squared_error(bound) <= SMALL_VARIANCE:
        return quantizer
    if isinstance(bound, Unbiased):
        return LeastError(quantizer)
    if isinstance(quantizer, Bounded):  # it declares that it has no bound
        return None
    scaled = LeastError(quantizer)
    return scaled if measured_factor(scaled) < 1 else None


def measured_factor(quantizer: Quantizer[CompensatedUpdate, Any]) -> float:
    """Return the largest mean squared error of `hard_vectors`, as a share of their squares."""
    rng = np.random.default_rng(0)
    vectors = (vector for n in MEASURED_SIZES for _, vector in hard_vectors(n, rng))
    return max(float(errors(quantizer, vector, MEASURED_SEEDS)[0].mean()) for vector in vectors)


def hard_vectors(n: int, rng: np.random.Generator) -> Iterator[tuple[str, Vector]]:
    """Yield (name, vector) of `n` entries each: vectors on which one quantizer or another has its largest error."""
    yield "Gaussian values", rng.standard_normal(n, np.float32)
    yield "sparse values", np.where(np.arange(n) % 10 == 0, rng.standard_normal(n), 0).astype(np.float32)
    yield "heavy-tailed values", rng.standard_cauchy(n).astype(np.float32)
    small = rng.uniform(0.01, 0.02, n).astype(np.float32)
    small[n // 2] = 1
    yield "one large value among small ones", small
    yield "two large values among small ones", np.where(np.arange(n) == n // 3, np.float32(-0.1), small)


def errors(
    quantizer: Quantizer[CompensatedUpdate, Any], vector: Vector, seeds: int
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float]:
    """Return ||C(v) - v||^2 / ||v||^2 for each seed, float64 (seeds,), and the same of the mean of C(v) over the seeds."""
    wide = vector.astype(np.float64)
    total, found = np.zeros(vector.size), np.empty(seeds)
    for seed in range(seeds):
        error = quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(seed))).dense() - wide
        total, found[seed] = total + error, error @ error
    square = float(wide @ wide)
    return found / square, float(np.square(total / seeds).sum()) / square
