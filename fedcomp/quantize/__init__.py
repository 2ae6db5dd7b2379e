"""Vectors to symbols, with loss: one idea a file."""

from fedcomp.quantize.cgx import Cgx
from fedcomp.quantize.chunked_topk import ChunkedTopK
from fedcomp.quantize.eden import Eden
from fedcomp.quantize.identity import Identity
from fedcomp.quantize.logarithmic import Logarithmic
from fedcomp.quantize.magnitude_levels import LloydMagnitudes, MagnitudeHierarchy
from fedcomp.quantize.natural_compression import Natural
from fedcomp.quantize.natural_dithering import NaturalDithering
from fedcomp.quantize.one_bit import OneBit
from fedcomp.quantize.per_tensor import PerTensor
from fedcomp.quantize.power_iteration import LowRank
from fedcomp.quantize.protocol import Quantizer, chain
from fedcomp.quantize.qsgd import Qsgd
from fedcomp.quantize.regularized_topk import RegularizedTopK
from fedcomp.quantize.round_values import RoundValues
from fedcomp.quantize.scheduled_topk import ScheduledTopK
from fedcomp.quantize.seeded_subset import SeededSubset
from fedcomp.quantize.signs import Signs, check_step
from fedcomp.quantize.tensor_topk import TensorTopK
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.terngrad import TernGrad
from fedcomp.quantize.topk import TopK, num_kept

__all__ = [
    "Cgx",
    "ChunkedTopK",
    "Eden",
    "Identity",
    "LloydMagnitudes",
    "Logarithmic",
    "LowRank",
    "MagnitudeHierarchy",
    "Natural",
    "NaturalDithering",
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
    "chain",
    "check_step",
    "num_kept",
]
