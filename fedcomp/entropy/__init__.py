"""Entropy codes: quantized vectors to bytes and back, without loss.

`bits/` has the tools that write and read fields, `codes/` the codes of positions, symbols and values, and `bodies/` one
body format for each codec id.
"""

from fedcomp.entropy.bodies.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.entropy.bodies.levels_code import LevelsCode
from fedcomp.entropy.bodies.low_rank_code import LowRankRaw
from fedcomp.entropy.bodies.raw import Raw
from fedcomp.entropy.bodies.rotated_code import RotatedBits
from fedcomp.entropy.bodies.seeded_values import SeededValues
from fedcomp.entropy.bodies.segments_code import SegmentsCode
from fedcomp.entropy.bodies.sparse_levels import SparseLevelsCode
from fedcomp.entropy.bodies.sparse_values import SparseValues
from fedcomp.entropy.protocol import MAX_ENTRIES, EntropyCode

__all__ = [
    "MAX_ENTRIES",
    "EntropyCode",
    "GolombTernary",
    "GolombTernaryInterleaved",
    "LevelsCode",
    "LowRankRaw",
    "Raw",
    "RotatedBits",
    "SeededValues",
    "SegmentsCode",
    "SparseLevelsCode",
    "SparseValues",
]
