"""Methods that send every entry, as one of a few levels or as float32."""

from fedcomp.core import check_choice
from fedcomp.entropy import LevelsCode, Raw, SegmentsCode, TernaryCode
from fedcomp.memory import LinearFeedback, NoMemory
from fedcomp.methods.registry import Parts, memory, register
from fedcomp.quantize import (
    AboveMean,
    Cgx,
    Identity,
    Natural,
    NaturalDithering,
    PerTensor,
    Qsgd,
    Ternarize,
    TernGrad,
    chain,
)

__all__ = ["cgx", "dense", "ecqsgd", "natural", "natural_dithering", "qsgd", "ternary", "terngrad"]


@register("no compression")
def dense() -> Parts:
    """Return the compressor that sends every entry as float32, without loss and without a memory.

    As downlink, it loses changes below the last bit of a weight: a change of less than about 2^-25 of a float32 weight never
    moves the weight, however many rounds repeat it.  A downlink with a residual, such as ``topk(density=1.0)``, keeps such
    changes.
    """
    return Identity(), Raw(), NoMemory()


@register("Alistarh et al., NeurIPS 2017, arXiv:1610.02132")
def qsgd(levels: int = 7, norm: str = "max", bucket: int = 512, feedback: bool = False) -> Parts:
    """Return QSGD: one norm per `bucket`, and each entry rounded at random to a sign and a multiple of norm / `levels`.

    7 levels and a sign are 4 bits.  `norm` is "max", as in the paper's experiments, or "l2", as in its analysis.  With "l2" and
    few levels, most entries are zero and take few bits.  Unbiased, and without a memory unless `feedback` is on.
    Alistarh, Grubic, Li, Tomioka, Vojnović, NeurIPS 2017, arXiv:1610.02132.
    """
    quantizer = Qsgd(levels, norm, bucket)
    if feedback and quantizer.variance_constant >= 1:
        raise ValueError(
            f"feedback is {feedback!r}; with levels={levels}, norm={norm!r}, bucket={bucket} the error would grow without end: "
            f"its variance is {quantizer.variance_constant:.3g} times the square of the vector, and below 1 is needed"
        )
    return quantizer, LevelsCode(), memory(feedback)


@register("Wu et al., ICML 2018, arXiv:1806.08054")
def ecqsgd(alpha: float = 0.2, beta: float = 0.9, levels: int = 4, norm: str = "l2", bucket: int = 512) -> Parts:
    """Return ECQ-SGD: QSGD of the update plus `alpha` times an accumulated error that decays by `beta`.

    `levels`, `norm` and `bucket` have the same meaning as for `qsgd`.  Settings with which the error may grow without bound are
    refused.  Wu, Huang, Huang, Zhang, ICML 2018, arXiv:1806.08054.
    """
    quantizer, remembered = Qsgd(levels, norm, bucket), LinearFeedback(alpha, beta, "accumulated_error")
    contraction = remembered.contraction(quantizer.variance_constant)
    if contraction >= 1:
        raise ValueError(
            f"alpha is {alpha!r} and beta {beta!r}; alpha^2 gamma + (beta - alpha)^2 must be below 1 and is {contraction:.3g}, "
            f"gamma is {quantizer.variance_constant:.3g} with levels={levels}, norm={norm!r}, bucket={bucket}"
        )
    return quantizer, LevelsCode(), remembered


@register("Horváth et al., MSML 2022, arXiv:1905.10988")
def natural(feedback: bool = False) -> Parts:
    """Return natural compression: every entry rounded at random to one of the two next powers of two.  Unbiased.

    Without a memory unless `feedback` is on.  Horváth, Ho, Horváth, Sahu, Canini, Richtárik, MSML 2022, arXiv:1905.10988.
    """
    return Natural(), LevelsCode(), memory(feedback)


@register("Horváth et al., MSML 2022, arXiv:1905.10988")
def natural_dithering(levels: int = 8, norm: str = "max", bucket: int = 512) -> Parts:
    """Return natural dithering: QSGD with the levels 0, 2^(1 - levels), ..., 1/2, 1.  Unbiased.

    `norm` and `bucket` have the same meaning as for `qsgd`.  Horváth, Ho, Horváth, Sahu, Canini, Richtárik, MSML 2022,
    arXiv:1905.10988.
    """
    return NaturalDithering(levels, norm, bucket), LevelsCode(), NoMemory()


@register("Wen et al., NeurIPS 2017, arXiv:1705.07878")
def terngrad(clip: float = 2.5, scaler: str = "own") -> Parts:
    """Return TernGrad: each entry as -s, 0 or s at random, where s is the largest magnitude of its tensor after clipping.

    Entries are clipped at `clip` standard deviations (0: no clipping).  Unbiased except for the clipping.  With the `scaler`
    "power", s is rounded up to a power of two, so that updates of several nodes sum as whole numbers.  This replaces the
    paper's scaler sharing, which needs a second exchange in each round to find the largest s of all nodes.
    Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017, arXiv:1705.07878.
    """
    return TernGrad(clip, scaler), LevelsCode(), NoMemory()


@register("in the style of Xu et al., arXiv:2208.05631")
def ternary(factor: float = 0.7, scope: str = "tensor", dense_below: int = 0, feedback: bool = False) -> Parts:
    """Return threshold quantization: entries above `factor` times the mean magnitude become ± the mean of their magnitudes.

    It draws no random numbers, and has less error than random ternary values.  It is made for `fedcomp.flower.QcmdAdagrad` and
    `QrdaAdagrad`, because small entries stay exactly zero.  `scope` is "tensor", with a threshold and a magnitude for each
    tensor, or "vector"; `dense_below` has the same meaning as for `stc`.

    In the style of QCMD and QRDA Adagrad (Xu, Wangni, Zhang, Ye, Wu, Zhao, arXiv:2208.05631).  That paper was not available:
    the threshold is taken from ternary weight networks (Li, Zhang, Liu, arXiv:1605.04711).

    Examples:
        >>> import numpy as np
        >>> compressor = ternary(scope="vector")
        >>> body, _ = compressor.encode(np.array([4, -2, 1, 0], np.float32), compressor.init(4))
        >>> compressor.decode(body)
        array([ 3., -3.,  0.,  0.], dtype=float32)
    """
    check_choice("scope", scope, ("tensor", "vector"))
    quantizer = chain(AboveMean(factor), Ternarize())
    if scope == "tensor":
        return PerTensor(quantizer, dense_below), SegmentsCode(), memory(feedback)
    if dense_below != 0:
        raise ValueError(f"dense_below is {dense_below!r}; only scope='tensor' takes one")
    return quantizer, TernaryCode(), memory(feedback)


@register("Markov et al., Middleware 2022, arXiv:2111.08617")
def cgx(
    bits: int = 4,
    bucket: int = 1024,
    adaptive: bool = False,
    tolerance: float = 1.0,
    dense_below: int = 1024,
    feedback: bool = False,
    rounding: str = "nearest",
) -> Parts:
    """Return CGX: the range of each `bucket` in 2^bits even levels.

    `rounding` is to the "nearest" level, or "random": to one of the two next levels, without bias.  With `feedback`, levels
    have the offset and the distance of least error.
    Tensors of one dimension, and tensors of fewer than `dense_below` entries, are sent unchanged.  With `adaptive` a greedy
    solver chooses 2 to 8 bits for each tensor.  The total error then stays within `tolerance` times the error of `bits`
    everywhere.  Markov, Ramezanikebrya, Alistarh, Middleware 2022, arXiv:2111.08617; the solver is in their style.
    """
    scale = "minimal" if feedback else "range"
    return Cgx(bits, bucket, adaptive, tolerance, dense_below, rounding, scale), SegmentsCode(), memory(feedback)
