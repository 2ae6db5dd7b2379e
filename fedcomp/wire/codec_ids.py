"""The number of each entropy code on the wire.  A number is assigned once, and the code behind it never changes."""

from typing import Any

from fedcomp.entropy import (
    CrossPolytopeCode,
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
    StepsCode,
    TernaryCode,
)
from fedcomp.errors import UnknownFormatError
from fedcomp.methods import METHODS

NO_BODY = 0
"""The codec id of a frame that has no body."""
STEPS_CODEC = 11
"""The codec of jumps."""
SOME_TENSORS = 13
"""The codec of a body that holds some tensors of the model: their bits, and a body of another codec (`selection.py`)."""
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
    STEPS_CODEC: StepsCode(),
    12: TernaryCode(),
    14: CrossPolytopeCode(),
}
"""Codec id -> code, with the codes of third parties that `register_codec` added."""
THIRD_PARTY_IDS = range(128, 256)
"""Codec ids for codes that do not come with fedcomp; an id is one byte of the frame head."""


def register_codec(codec: int, code: EntropyCode[Any]) -> None:
    """Register `code`, a third party's entropy code, under the id `codec`, 128 to 255.

    Sender and receiver need the same registration: a frame identifies the code of its body only by this id.  Any instance of
    the type of `code` can then encode; the registered instance decodes.

    Raises:
        ValueError: The id is taken or out of range, the type of `code` has an id already, or `code` is a class.

    """
    if codec not in THIRD_PARTY_IDS:
        raise ValueError(
            f"codec id {codec!r}; the ids of third parties are {THIRD_PARTY_IDS[0]} to {THIRD_PARTY_IDS[-1]}"
        )
    if isinstance(code, type):
        raise ValueError(f"the class {code.__name__}; an instance of it is needed")
    if codec in CODECS:
        raise ValueError(f"codec id {codec} belongs to {CODECS[codec]!r}; choose another one")
    for number, known in CODECS.items():
        if type(known) is type(code):
            raise ValueError(f"{type(code).__name__} has the codec id {number} already; it cannot have {codec} too")
    CODECS[codec] = code


def codec_id(code: EntropyCode[Any]) -> int:
    """Return the id of `code`.  Its settings do not matter, since only the encoder needs them.

    Raises `ValueError` if the type of `code` has no id.
    """
    for number, known in CODECS.items():
        if type(known) is type(code):
            return number
    raise ValueError(f"{code!r} has no codec id; give it one from 128 to 255 with fedcomp.register_codec")


def codec_by_id(number: int) -> EntropyCode[Any]:
    """Return the code with this id, including the codes of plug-ins.  Raises `UnknownFormatError` if there is none."""
    if number not in CODECS and number in THIRD_PARTY_IDS:
        METHODS.load_plugins()
    if number not in CODECS:
        raise UnknownFormatError(f"codec {number}; known are {', '.join(map(str, CODECS))}")
    return CODECS[number]
