"""Entropy codes: quantized vectors to bytes and back, without loss.

`bits/` has the tools that write and read fields, `codes/` the codes of positions, symbols and values, and `bodies/` one
body format for each codec id.
"""

from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.bodies.cross_polytope_code import CrossPolytopeCode
from fedcomp.entropy.bodies.dense import LevelsCode, Raw
from fedcomp.entropy.bodies.golomb import GolombTernary, GolombTernaryInterleaved
from fedcomp.entropy.bodies.head import check_claim
from fedcomp.entropy.bodies.rotated_code import RotatedBits
from fedcomp.entropy.bodies.segments_code import LowRankRaw, SegmentsCode
from fedcomp.entropy.bodies.sparse import SeededValues, SparseLevelsCode, SparseValues
from fedcomp.entropy.bodies.steps_code import StepsCode
from fedcomp.entropy.bodies.ternary import TernaryCode
from fedcomp.entropy.protocol import MAX_ENTRIES, EntropyCode

__all__ = [
    "MAX_ENTRIES",
    "ByteReader",
    "CrossPolytopeCode",
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
    "StepsCode",
    "TernaryCode",
    "check_claim",
    "write_varint",
]
