"""Methods that send a few of the entries."""

from fedcomp.core import CompensatedUpdate, check_choice, check_range
from fedcomp.entropy import (
    EntropyCode,
    GolombTernaryInterleaved,
    SeededValues,
    SegmentsCode,
    SparseLevelsCode,
    SparseValues,
    TernaryCode,
)
from fedcomp.memory import Ef21, LinearFeedback, MomentumCorrection, NoMemory, Regularized
from fedcomp.methods.registry import Parts, memory, register
from fedcomp.quantize import (
    ChunkedTopK,
    LloydMagnitudes,
    Logarithmic,
    MagnitudeHierarchy,
    PerTensor,
    Quantizer,
    RegularizedTopK,
    RoundValues,
    ScheduledTopK,
    SeededSubset,
    TensorTopK,
    Ternarize,
    TopK,
    chain,
)
from fedcomp.quantized import Sparse, Ternary

__all__ = ["dgc", "ef21", "fastsgd", "hierarchical", "randk", "regtopk", "selective", "sparseloco", "stc", "topk"]


@register("Sattler et al., TNNLS 2020, arXiv:1903.02891")
def stc(density: float = 1 / 400, order: str = "split", scope: str = "vector", dense_below: int = 0) -> Parts:
    """Return sparse ternary compression with error feedback.

    Keeps the k = max(1, ceil(density n)) largest entries of residual + update as ±their mean magnitude.  With `order` "split",
    positions (in Golomb code or another one) and signs are separate streams; "interleaved" is the paper's Golomb code.
    `scope` is "vector", or "tensor" for a k and a mean of each tensor, as in the authors' code.  With "tensor" and
    `dense_below` above 0, tensors of one dimension and tensors of fewer than `dense_below` entries are sent unchanged.
    Sattler, Wiedemann, Müller, Samek, IEEE TNNLS 31(9), 2020, arXiv:1903.02891.

    Examples:
        >>> import numpy as np
        >>> compressor = stc(density=0.5)
        >>> body, state = compressor.encode(np.array([4, -2, 1, 0], np.float32), compressor.init(4))
        >>> compressor.decode(body)
        array([ 3., -3.,  0.,  0.], dtype=float32)
        >>> state["residual"]
        array([1., 1., 1., 0.], dtype=float32)
    """
    ternary = chain(TopK(density), Ternarize())
    codes: dict[str, EntropyCode[Ternary]] = {"split": TernaryCode(), "interleaved": GolombTernaryInterleaved()}
    check_choice("order", order, codes)
    _check_scope(scope, dense_below)
    if scope == "vector":
        return ternary, codes[order], LinearFeedback()
    if order != "split":
        raise ValueError(f"order is {order!r}; with scope='tensor' it is 'split'")
    return PerTensor(ternary, dense_below), SegmentsCode(), LinearFeedback()


@register("Aji, Heafield, EMNLP 2017, arXiv:1704.05021")
def topk(
    density: float = 1 / 100, values: str = "fp32", feedback: bool = True, scope: str = "vector", dense_below: int = 0
) -> Parts:
    """Return top-k: the k = max(1, ceil(density n)) largest entries, with error feedback unless `feedback` is off.

    `values` is their format: "fp32", "fp16" (times a power of two, so that none overflows), "bf16", or "natural" (signs
    and random powers of two, Horváth et al., arXiv:1905.10988).  `scope` is "vector", or "tensor" for a k of each tensor.
    With "tensor" and `dense_below` above 0, tensors of one dimension and tensors of fewer than `dense_below` entries keep all
    entries.  Aji, Heafield, EMNLP 2017, arXiv:1704.05021.

    Examples:
        >>> import numpy as np
        >>> compressor = topk(density=0.25, values="fp16")
        >>> body, state = compressor.encode(np.array([4.001, -2, 1, 0], np.float32), compressor.init(4))
        >>> compressor.decode(body)
        array([4., 0., 0., 0.], dtype=float32)
    """
    return RoundValues(_selection(density, scope, dense_below), values), SparseValues(), memory(feedback)


@register("Wangni et al., NeurIPS 2018, arXiv:1710.09854")
def randk(density: float = 1 / 100, feedback: bool = True) -> Parts:
    """Return rand-k: k = max(1, ceil(density n)) random entries.  Sender and receiver draw the indices from one seed.

    With error feedback the entries are sent unchanged.  Without it they are multiplied by n / k, so the vector is unbiased.
    Wangni, Wang, Liu, Zhang, NeurIPS 2018, arXiv:1710.09854; Stich, Cordonnier, Jaggi, NeurIPS 2018, arXiv:1809.07599.
    """
    return SeededSubset(density, unbiased=not feedback), SeededValues(), memory(feedback)


@register("Ji et al., IEEE Intell. Syst. 2022, arXiv:2003.09603")
def selective(density: float = 1 / 10) -> Parts:
    """Return selective masking: the largest entries of each tensor, as float32, without a memory.

    Ji, Jiang, Walid, Li, IEEE Intelligent Systems 37(2), 2022, arXiv:2003.09603.
    """
    return TensorTopK(density), SparseValues(), NoMemory()


@register("in the style of Jiang et al. (DHQC), arXiv:2212.14760")
def hierarchical(
    density: float = 1 / 10, levels: int = 4, top_levels: int = 2, mask: str = "vector", feedback: bool = True
) -> Parts:
    """Return hierarchical quantization: the largest entries in `levels` of magnitude; the top level has `top_levels` parts.

    `mask` selects the largest entries of the whole "vector" or of each "tensor".  In both cases the levels are those of all
    kept entries of the vector, so a message has one table.  In the style of DHQC (Jiang, Liu, Chen, Zhou, arXiv:2212.14760).
    `MagnitudeHierarchy` lists the details that are our decisions; error feedback is another one.
    """
    masks: dict[str, Quantizer[CompensatedUpdate, Sparse]] = {"vector": TopK(density), "tensor": TensorTopK(density)}
    check_choice("mask", mask, masks)
    return chain(masks[mask], MagnitudeHierarchy(levels, top_levels)), SparseLevelsCode(), memory(feedback)


@register("Bereyhi et al., arXiv:2501.05633", downlink=False)
def regtopk(
    density: float = 1 / 100, mu: float = 4.0, nodes: int = 10, denominator: str = "sent", values: str = "fp32"
) -> Parts:
    """Return regularized top-k: top-k that leaves out entries that the other `nodes` of a round are likely to cancel.

    As the regularization `mu` goes to 0, it becomes top-k with error feedback.  After a skipped round it is top-k as well.
    `denominator`, "sent" or "asked", is explained at `RegularizedTopK`.  The sum of the other nodes is read from the model.
    So the method expects a `dense()` downlink, FedAvg and equal weights; otherwise it regularizes by an approximation.
    Bereyhi, Liang, Boudreau, Afana, arXiv:2409.14893 and arXiv:2501.05633.
    """
    return RoundValues(RegularizedTopK(density, mu, denominator), values), SparseValues(), Regularized(nodes)


@register("Lin et al., ICLR 2018, arXiv:1712.01887", downlink=False)
def dgc(
    density: float = 1 / 1000,
    momentum: float = 0.9,
    warmup: int = 4,
    clip: float = 0.0,
    nodes: int = 1,
    masking: bool = True,
    nesterov: bool = False,
    values: str = "fp32",
    warmup_steps: int | None = None,
    scope: str = "vector",
    dense_below: int = 0,
) -> Parts:
    """Return deep gradient compression: top-k of an accumulated velocity.

    The clients train without momentum, which is applied here.  The density falls over the first `warmup` rounds, in every
    round or in `warmup_steps` equal steps: the paper's 25, 6.3, 1.6 and 0.4 % are four epochs.  `clip` is the largest norm of
    the mean update of `nodes` senders (0: no clipping).  `masking` zeroes the velocity of selected entries (momentum
    factor masking), and `nesterov` uses Nesterov momentum.

    `values`, `scope` and `dense_below` have the same meaning as for `topk`.  The authors' code uses scope="tensor" and keeps
    tensors of one dimension dense, `dense_below=1`.  Tensors that are sent whole have ordinary momentum; with a density of 1
    this is momentum SGD.
    Lin, Han, Mao, Wang, Dally, ICLR 2018, arXiv:1712.01887.
    """
    selection = ScheduledTopK(_selection(density, scope, dense_below), warmup, warmup_steps)
    remembered = MomentumCorrection(momentum, masking, nesterov, clip, nodes, selection)
    return RoundValues(selection, values), SparseValues(), remembered


@register("in the style of Yang et al., arXiv:2112.04291")
def fastsgd(base: float = 2**0.25, levels: int = 8, feedback: bool = True) -> Parts:
    """Return logarithmic levels of the entries whose magnitude is within ``base**(levels - 1/2)`` of the largest one.

    Indices are delta keys, or another code if that takes fewer bytes.  The number of entries depends on the vector.
    In the style of FastSGD (Yang, Chen, Zeng, Gao, arXiv:2112.04291), whose abstract names the parts; the details and error
    feedback are our decisions.
    """
    return Logarithmic(base, levels), SparseLevelsCode(), memory(feedback)


@register("Sarfi et al., arXiv:2508.15706")
def sparseloco(density: float = 1 / 64, bits: int = 2, decay: float = 0.95, chunk: int = 4096) -> Parts:
    """Return SparseLoCo: the largest entries of each chunk in `bits` bits, with error feedback that decays.

    The decay replaces an outer momentum.  Sarfi, Thérien, Lidin, Belilovsky, arXiv:2508.15706.
    """
    check_range("decay", decay, least=0, most=1)
    return (
        chain(ChunkedTopK(density, chunk), LloydMagnitudes(bits)),
        SparseLevelsCode(),
        LinearFeedback(decay, decay, "decayed"),
    )


@register("Fatkhullin et al., NeurIPS 2023, arXiv:2305.15155", downlink=False)
def ef21(density: float = 1 / 100, momentum: float = 0.1, values: str = "fp32") -> Parts:
    """Return EF21-SGDM with top-k: messages are increments of an estimate of the averaged update, not updates.

    `momentum` is the weight of the newest update in the average; 1 gives EF21.  `values` are the formats of `topk`.
    The server must sum the messages, as the strategy `fedcomp.flower.EF21` does inside `CompressedStrategy`.  On the downlink,
    any method with error feedback already is EF21-P (Gruntkowska, Tyurin, Richtárik, ICML 2023).

    Richtárik, Sokolov, Fatkhullin, NeurIPS 2021, arXiv:2106.05203; Fatkhullin, Tyurin, Richtárik, NeurIPS 2023,
    arXiv:2305.15155.
    """
    return RoundValues(TopK(density), values), SparseValues(), Ef21(momentum)


def _selection(density: float, scope: str, dense_below: int) -> TopK | TensorTopK:
    _check_scope(scope, dense_below)
    return TopK(density) if scope == "vector" else TensorTopK(density, dense_below)


def _check_scope(scope: str, dense_below: int) -> None:
    check_choice("scope", scope, ("vector", "tensor"))
    if scope == "vector" and dense_below != 0:
        raise ValueError(f"dense_below is {dense_below!r}; only scope='tensor' takes one")
