"""The number of each entropy code on the wire.  A number is never given twice, and what it names never changes."""

from typing import Any

from fedcomp.entropy import EntropyCode
from fedcomp.entropy.golomb import GolombTernary
from fedcomp.entropy.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.entropy.levels import LevelsCode
from fedcomp.entropy.low_rank import LowRankRaw
from fedcomp.entropy.pieces import PiecesCode
from fedcomp.entropy.raw import Raw
from fedcomp.entropy.rotated import RotatedBits
from fedcomp.entropy.seeded_values import SeededValues
from fedcomp.entropy.sparse_levels import SparseLevelsCode
from fedcomp.entropy.sparse_values import SparseValues
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
    10: PiecesCode(),
}
"""Numbers from 128 on are free for codes that do not come with fedcomp."""


def codec_id(code: EntropyCode[Any]) -> int:
    """Return the number of `code`, whatever its settings: they are the encoder's.  Raise `ValueError` where it has none."""
    for number, known in CODECS.items():
        if type(known) is type(code):
            return number
    raise ValueError(f"{code!r} has no codec id; put it into fedcomp.wire.codecs.CODECS under a number from 128 on")


def codec(number: int) -> EntropyCode[Any]:
    """Return the code of that number."""
    if number not in CODECS:
        raise UnknownFormatError(f"codec {number}; known are {', '.join(map(str, CODECS))}")
    return CODECS[number]
