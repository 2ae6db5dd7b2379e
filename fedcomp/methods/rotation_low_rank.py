"""Methods that send a rotated vector, or matrices of low rank."""

from fedcomp.entropy import CrossPolytopeCode, LowRankRaw, RotatedBits
from fedcomp.memory import LinearFeedback, WarmStart
from fedcomp.methods.registry import Parts, memory, register
from fedcomp.quantize import Eden, LowRank, NearestVertex

__all__ = ["crosspolytope", "drive", "eden", "powersgd"]


@register("Vargaftik et al., NeurIPS 2021, arXiv:2105.08339")
def drive(feedback: bool = False) -> Parts:
    """Return DRIVE: the signs of the randomly rotated vector, one bit an entry, without a memory.

    Unbiased unless a few entries hold most of the norm of their 65,536: then the mean may hold none of the others, or more
    than twice their values.  Vectors of fewer than about 20 entries, which have few rotations, keep a bias too.  With
    `feedback`, it has error feedback and the scale of least error.  Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak,
    Mitzenmacher, NeurIPS 2021, arXiv:2105.08339.
    """
    return Eden(1, "minimal" if feedback else "unbiased"), RotatedBits(), memory(feedback)


@register("Vargaftik et al., ICML 2022, arXiv:2108.08842")
def eden(bits: float = 2, feedback: bool = False) -> Parts:
    """Return EDEN: the randomly rotated vector in `bits` bits an entry, up to 4; fractions are possible, also below 1.

    Unbiased unless a few entries hold most of the norm of their 65,536: then the mean may hold none of the others, or more
    than twice their values.  More bits leave less bias.  Vectors of fewer than about 20 entries, which have few rotations, keep
    a bias too.  With `feedback`, it has error feedback and the scale of least error.  Vargaftik, Ben Basat, Portnoy,
    Mendelson, Ben Itzhak, Mitzenmacher, ICML 2022, arXiv:2108.08842.
    """
    return Eden(bits, "minimal" if feedback else "unbiased"), RotatedBits(), memory(feedback)


@register("fedcomp, after Gandikota et al., AISTATS 2021, arXiv:1911.07971")
def crosspolytope(bits: float = 0.3, feedback: bool = False) -> Parts:
    """Return the rotated cross-polytope: the randomly rotated vector in `bits` bits an entry, 0.002 to 1.

    Of each group of m rotated entries it sends the place and the sign of the largest one, in log2(m) + 1 bits: the nearest
    vertex of a cross-polytope.  Parts of the vector get bits in proportion to their norms.  Unbiased unless a few entries
    hold most of the norm of their chunk, up to 32,768 entries, or the vector has fewer than about 20 entries, which have few
    rotations.  At the same bits below one, its squared error is two thirds of that of `eden` on Gaussian vectors, and a quarter
    to a half on updates of models.  With `feedback`, it has error feedback and the scale of least error.

    Related methods.  DRIVE and EDEN, whose scale it has, send the sign of every rotated entry; below one bit, EDEN sends those
    of a random subset, and the entries outside are lost.  vqSGD (Gandikota, Kane, Maity, Mazumdar, AISTATS 2021,
    arXiv:1911.07971) draws a vertex of one cross-polytope around the whole vector at random, which is unbiased without a
    rotation, with a variance in proportion to n.  Entropy-coded dithering (QSGD) sends the largest entries too, as many as
    there are; a fixed number per group has less error at the same bits, and symbols of equal length.
    """
    return NearestVertex(bits, "minimal" if feedback else "unbiased"), CrossPolytopeCode(), memory(feedback)


@register("Vogels et al., NeurIPS 2019, arXiv:1905.13727")
def powersgd(rank: int = 2) -> Parts:
    """Return PowerSGD: each matrix as the product of two matrices of `rank` columns, warm-started, with error feedback.

    Each sender sends both factors of its own matrix, in one exchange a round; the paper's all-reduce takes two.
    Vogels, Karimireddy, Jaggi, NeurIPS 2019, arXiv:1905.13727.
    """
    return LowRank(rank), LowRankRaw(), WarmStart(LinearFeedback())
