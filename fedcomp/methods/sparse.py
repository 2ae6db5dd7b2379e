"""Methods that send a few of the entries."""

from fedcomp.entropy import EntropyCode
from fedcomp.entropy.golomb import GolombTernary
from fedcomp.entropy.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.memory.error_feedback import ErrorFeedback
from fedcomp.methods.registry import Parts, method
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK
from fedcomp.settings import one_of
from fedcomp.stage import chain
from fedcomp.symbols import Ternary


@method("Sattler et al., TNNLS 2020, arXiv:1903.02891")
def stc(density: float = 1 / 400, order: str = "split") -> Parts:
    """Return sparse ternary compression with error feedback.

    Keeps the k = max(1, ceil(density n)) largest entries of residual + update as ±their mean magnitude, positions in Golomb
    code.  `order` is "split" (streams that decode fast, a Rice parameter per chunk) or "interleaved" (the paper's order).
    Sattler, Wiedemann, Müller, Samek, IEEE TNNLS 31(9), 2020, arXiv:1903.02891.
    """
    codes: dict[str, EntropyCode[Ternary]] = {"split": GolombTernary(), "interleaved": GolombTernaryInterleaved()}
    one_of("order", order, codes)
    return chain(TopK(density), Ternarize()), codes[order], ErrorFeedback()
