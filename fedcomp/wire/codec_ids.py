"""The number of each entropy code on the wire.  A number is never given twice, and what it names never changes."""

from typing import Any

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
from fedcomp.entropy.protocol import EntropyCode
from fedcomp.errors import UnknownFormatError

NO_BODY = 0
CODECS: dict[int, EntropyCode[Any]] = {
    1: Raw(),
    2: GolombTernary(),
    3: GolombTernaryInterleaved(),
    4: SparseValues(),
    5: SparseLevelsCode(),
    6: SeededValues(),
    7: LevelsCode(),
    8: RotatedBits(),
    9: LowRankRaw(),
    10: SegmentsCode(),
}
"""Numbers from 128 on are free for codes that do not come with fedcomp."""


def codec_id(code: EntropyCode[Any]) -> int:
    """Return the number of `code`, whatever its settings: they are the encoder's.  Raise `ValueError` where it has none."""
    for number, known in CODECS.items():
        if type(known) is type(code):
            return number
    raise ValueError(f"{code!r} has no codec id; put it into fedcomp.wire.codec_ids.CODECS under a number from 128 on")


def codec(number: int) -> EntropyCode[Any]:
    """Return the code of that number."""
    if number not in CODECS:
        raise UnknownFormatError(f"codec {number}; known are {', '.join(map(str, CODECS))}")
    return CODECS[number]
