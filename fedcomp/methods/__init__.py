"""Compressors under the names of their papers, and the text that describes a compressor.

A new method is a function in one of the files below, composed of existing parts and at most one new quantizer, entropy
code or memory.  `__all__` of that file exports it, and so does `fedcomp`.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from fedcomp.compressor import Compressor
from fedcomp.core import build
from fedcomp.methods import automatic, balance, quantization, rotation_low_rank, sign_based, sparsification
from fedcomp.methods.automatic import *
from fedcomp.methods.automatic import FLAT as FLAT
from fedcomp.methods.automatic import VERY_MANY_ROUNDS as VERY_MANY_ROUNDS
from fedcomp.methods.automatic import Choice as Choice
from fedcomp.methods.automatic import RoundFacts as RoundFacts
from fedcomp.methods.automatic import choose_downlink as choose_downlink
from fedcomp.methods.automatic import choose_uplink as choose_uplink
from fedcomp.methods.automatic import crosspolytope_error as crosspolytope_error
from fedcomp.methods.balance import *
from fedcomp.methods.balance import MIN_SHARE as MIN_SHARE
from fedcomp.methods.balance import balance_of as balance_of
from fedcomp.methods.balance import first_share as first_share
from fedcomp.methods.balance import next_share as next_share
from fedcomp.methods.balance import with_share as with_share
from fedcomp.methods.quantization import *
from fedcomp.methods.registry import METHODS as METHODS
from fedcomp.methods.registry import Parts as Parts
from fedcomp.methods.registry import register as register
from fedcomp.methods.rotation_low_rank import *
from fedcomp.methods.sign_based import *
from fedcomp.methods.sparsification import *
from fedcomp.methods.table import markdown_lines as markdown_lines
from fedcomp.methods.table import text_lines as text_lines

if not TYPE_CHECKING:  # mypy cannot add lists of names; without `__all__` it exports what is imported by * or by `as`
    __all__ = ["METHODS", "Parts", "parse", "register"]
    for _family in (automatic, balance, quantization, rotation_low_rank, sign_based, sparsification):
        __all__ += _family.__all__


def parse(text: str) -> Compressor:
    """Return the compressor that `text` describes, such as ``"stc(density=0.0025)"``; the inverse of ``str(compressor)``.

    Settings are Python literals; nothing is evaluated.  ``"stc"`` alone means ``"stc()"``.

    Raises:
        ValueError: `text` is not of this form, the method or a setting is unknown, or a setting is out of range.

    Examples:
        >>> parse("stc(density=0.01)") == stc(density=0.01)
        True
        >>> str(parse("topk"))
        'topk(density=0.01)'

    """
    if not isinstance(text, str):
        raise ValueError(f"a {type(text).__name__}; a text of the form name(setting=value) is needed")
    return _parse(text)


@lru_cache(maxsize=64)
def _parse(text: str) -> Compressor:
    return build(text, METHODS, "method")
