"""Compressors by the names that their papers gave them, and the text that names one.

A new method is a composition in one of these files and at most one new stage, code or memory.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from fedcomp.compressor import Compressor
from fedcomp.core import build
from fedcomp.methods import quantization, rotation_low_rank, sign_based, sparsification
from fedcomp.methods.quantization import dense
from fedcomp.methods.registry import ABOUT
from fedcomp.methods.sparsification import stc

__all__ = [
    "ABOUT",
    "METHODS",
    "dense",
    "parse",
    "quantization",
    "rotation_low_rank",
    "sign_based",
    "sparsification",
    "stc",
]

METHODS: Mapping[str, Callable[..., Compressor]] = MappingProxyType({name: about.make for name, about in ABOUT.items()})


@lru_cache(maxsize=64)
def parse(text: str) -> Compressor:
    """Return the compressor that `text` names, as ``stc(density=0.0025)``; raise `ValueError` for anything else."""
    return build(text, METHODS, "method")
