"""Compressors by the names that their papers gave them, and the text that names one.

A new method is a composition here and at most one new stage, code or memory.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from fedcomp.call import build
from fedcomp.compressor import Compressor
from fedcomp.entropy import EntropyCode
from fedcomp.entropy.golomb import GolombTernary
from fedcomp.entropy.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.entropy.raw import Raw
from fedcomp.memory.error_feedback import ErrorFeedback
from fedcomp.memory.none import NoMemory
from fedcomp.quantize.identity import Identity
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK
from fedcomp.stage import chain
from fedcomp.symbols import Ternary


def dense() -> Compressor:
    """Return the compressor that sends every float32 as it is and remembers nothing."""
    return Compressor("dense", (), Identity(), Raw(), NoMemory())


def stc(density: float = 1 / 400, order: str = "split") -> Compressor:
    """Return sparse ternary compression with error feedback.

    Keeps the k = max(1, ceil(density n)) largest entries of residual + update as ±their mean magnitude, positions in Golomb
    code.  `order` is "split" (streams that decode fast, a Rice parameter per chunk) or "interleaved" (the paper's order).
    Sattler, Wiedemann, Müller, Samek, IEEE TNNLS 31(9), 2020, arXiv:1903.02891.
    """
    codes: dict[str, EntropyCode[Ternary]] = {"split": GolombTernary(), "interleaved": GolombTernaryInterleaved()}
    if order not in codes:
        raise ValueError(f"order is {order!r}; it is 'split' or 'interleaved'")
    settings = (("density", density),) if order == "split" else (("density", density), ("order", order))
    return Compressor("stc", settings, chain(TopK(density), Ternarize()), codes[order], ErrorFeedback())


METHODS: Mapping[str, Callable[..., Compressor]] = MappingProxyType({"dense": dense, "stc": stc})


@lru_cache(maxsize=64)
def parse(text: str) -> Compressor:
    """Return the compressor that `text` names, as ``stc(density=0.0025)``; raise `ValueError` for anything else."""
    return build(text, METHODS, "method")
