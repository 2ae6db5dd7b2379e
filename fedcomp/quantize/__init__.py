"""Vectors to quantized vectors, with loss: one idea a file."""

from fedcomp.quantize.cgx import Cgx
from fedcomp.quantize.cross_polytope import NearestVertex
from fedcomp.quantize.eden import Eden
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
from fedcomp.quantize.least_error import LeastError, contracting, errors, hard_vectors
from fedcomp.quantize.magnitudes import LloydMagnitudes, Logarithmic, MagnitudeHierarchy, RoundValues, Ternarize
from fedcomp.quantize.norm_bound import NormBound
from fedcomp.quantize.per_tensor import PerTensor, TensorTopK
from fedcomp.quantize.power_iteration import LowRank
from fedcomp.quantize.protocol import Identity, OnGrid, Quantizer, chain
from fedcomp.quantize.random_rounding import Natural, NaturalDithering, Qsgd
from fedcomp.quantize.signs import OneBit, Signs, TernGrad, check_step
from fedcomp.quantize.sparsifiers import ChunkedTopK, RegularizedTopK, ScheduledTopK, SeededSubset
from fedcomp.quantize.threshold import AboveMean
from fedcomp.quantize.topk import TopK, num_kept

__all__ = [
    "MANY",
    "AboveMean",
    "Bounded",
    "Cgx",
    "ChunkedTopK",
    "Contractible",
    "Contracting",
    "Eden",
    "ErrorBound",
    "Identity",
    "LeastError",
    "LloydMagnitudes",
    "Logarithmic",
    "LowRank",
    "MagnitudeHierarchy",
    "Natural",
    "NaturalDithering",
    "NearestVertex",
    "NormBound",
    "OnGrid",
    "OneBit",
    "PerTensor",
    "Qsgd",
    "Quantizer",
    "RegularizedTopK",
    "RoundValues",
    "ScheduledTopK",
    "SeededSubset",
    "Signs",
    "TensorTopK",
    "TernGrad",
    "Ternarize",
    "TopK",
    "Unbiased",
    "chain",
    "check_step",
    "contracting",
    "error_bound",
    "errors",
    "hard_vectors",
    "num_kept",
    "squared_error",
]
