"""The number of each entropy code on the wire.  A number is never given twice, and what it names never changes."""

from typing import Any

from fedcomp.entropy import EntropyCode
from fedcomp.entropy.golomb import GolombTernary
from fedcomp.entropy.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.entropy.raw import Raw
from fedcomp.errors import UnknownFormatError

NO_BODY = 0
CODECS: dict[int, EntropyCode[Any]] = {1: Raw(), 2: GolombTernary(), 3: GolombTernaryInterleaved()}
"""Numbers from 128 on are free for codes that do not come with fedcomp."""


def codec_id(code: EntropyCode[Any]) -> int:
    """Return the number of `code`; raise `ValueError` where it has none."""
    for number, known in CODECS.items():
        if known == code:
            return number
    raise ValueError(f"{code!r} has no codec id; put it into fedcomp.wire.codecs.CODECS under a number from 128 on")


def codec(number: int) -> EntropyCode[Any]:
    """Return the code of that number."""
    if number not in CODECS:
        raise UnknownFormatError(f"codec {number}; known are {', '.join(map(str, CODECS))}")
    return CODECS[number]
