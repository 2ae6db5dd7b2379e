"""Quantized vectors: produced by quantizers, serialised by entropy codes, independent of both."""

from fedcomp.quantized.hadamard import aligned_buffer, transform
from fedcomp.quantized.levels import (
    EXPONENTS,
    LINEAR,
    POWERS,
    Groups,
    Levels,
    Scale,
    SparseLevels,
    geometric,
    group_count,
)
from fedcomp.quantized.low_rank import MAX_PRODUCT, LowRankFactors, Matrix, Product, worthwhile
from fedcomp.quantized.precision import PRECISIONS, from_halves, half_exponent, max_magnitude, round_to, to_halves
from fedcomp.quantized.rotated import (
    MAX_BITS,
    MAX_GAIN,
    MAX_SCALE,
    WIDTH_GROUP,
    Rotated,
    centroids,
    dequantize,
    half_bits,
    rotated_count,
    rotated_indices,
    wide_blocks,
)
from fedcomp.quantized.rotation import MAX_CHUNK, Rotation, power_of_two_parts
from fedcomp.quantized.seeded import NUM_SEEDS, Seeded, seeded_indices
from fedcomp.quantized.segments import Segments, join_dense
from fedcomp.quantized.vectors import Dense, Indices, QuantizedVector, Sparse, Ternary

__all__ = [
    "EXPONENTS",
    "LINEAR",
    "MAX_BITS",
    "MAX_CHUNK",
    "MAX_GAIN",
    "MAX_PRODUCT",
    "MAX_SCALE",
    "NUM_SEEDS",
    "POWERS",
    "PRECISIONS",
    "WIDTH_GROUP",
    "Dense",
    "Groups",
    "Indices",
    "Levels",
    "LowRankFactors",
    "Matrix",
    "Product",
    "QuantizedVector",
    "Rotated",
    "Rotation",
    "Scale",
    "Seeded",
    "Segments",
    "Sparse",
    "SparseLevels",
    "Ternary",
    "aligned_buffer",
    "centroids",
    "dequantize",
    "from_halves",
    "geometric",
    "group_count",
    "half_bits",
    "half_exponent",
    "join_dense",
    "max_magnitude",
    "power_of_two_parts",
    "rotated_count",
    "rotated_indices",
    "round_to",
    "seeded_indices",
    "to_halves",
    "transform",
    "wide_blocks",
    "worthwhile",
]
