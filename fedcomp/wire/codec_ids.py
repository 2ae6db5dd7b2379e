"""The number of each entropy code on the wire.  A number is never given twice, and what it names never changes."""

from typing import Any

from fedcomp.entropy import (
    EntropyCode,
    GolombTernary,
    GolombTernaryInterleaved,
    LevelsCode,
    LowRankRaw,
    Raw,
    RotatedBits,
    SeededValues,
    SegmentsCode,
    SparseLevelsCode,
    SparseValues,
)
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


def codec_by_id(number: int) -> EntropyCode[Any]:
    """Return the code of that number."""
    if number not in CODECS:
        raise UnknownFormatError(f"codec {number}; known are {', '.join(map(str, CODECS))}")
    return CODECS[number]
