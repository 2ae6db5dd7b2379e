"""Compressors by the names that their papers gave them, and the text that names one.

A new method is a composition in one of these files and at most one new stage, code or memory.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from fedcomp.call import build
from fedcomp.compressor import Compressor
from fedcomp.methods import levels, projections, signs, sparse
from fedcomp.methods.levels import dense
from fedcomp.methods.registry import ABOUT
from fedcomp.methods.sparse import stc

__all__ = ["ABOUT", "METHODS", "dense", "levels", "parse", "projections", "signs", "sparse", "stc"]

METHODS: Mapping[str, Callable[..., Compressor]] = MappingProxyType({name: about.make for name, about in ABOUT.items()})


@lru_cache(maxsize=64)
def parse(text: str) -> Compressor:
    """Return the compressor that `text` names, as ``stc(density=0.0025)``; raise `ValueError` for anything else."""
    return build(text, METHODS, "method")
