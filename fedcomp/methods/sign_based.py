"""Methods that send the sign of every entry."""

from fedcomp.core import check_choice
from fedcomp.entropy import LevelsCode, SparseValues
from fedcomp.memory import LinearFeedback, NoMemory
from fedcomp.methods.registry import Parts, register
from fedcomp.quantize import OneBit, Signs, TernGrad, TopK, check_step

__all__ = ["doublesqueeze", "efsign", "onebit", "signsgd"]


@register("Bernstein et al., ICML 2018, arXiv:1802.04434")
def signsgd(step: float = 0.001, ties: str = "zero") -> Parts:
    """Return signSGD: ± `step` for every entry, and no memory.

    With `fedcomp.flower.MajorityVote` as the strategy, the server counts votes, and this method is the downlink as well.  An
    entry of exactly zero, such as after a tied vote, is sent as zero.  With `ties="coin"` it is sent as ± `step` at random:
    one bit an entry.
    Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018, arXiv:1802.04434; ICLR 2019, arXiv:1810.05291 (majority vote).
    """
    check_step(step)
    return Signs(step, ties), LevelsCode(), NoMemory()


@register("Seide et al., Interspeech 2014")
def onebit() -> Parts:
    """Return 1-bit SGD: for each tensor the mean of its entries >= 0 and the mean of the others, with error feedback.

    Seide, Fu, Droppo, Li, Yu, Interspeech 2014, where the two means are taken for each column.
    """
    return OneBit(), LevelsCode(), LinearFeedback()


@register("Karimireddy et al., ICML 2019, arXiv:1901.09847")
def efsign() -> Parts:
    """Return EF-signSGD: the signs, times each tensor's mean magnitude, with error feedback.

    Karimireddy, Rebjock, Stich, Jaggi, ICML 2019, arXiv:1901.09847; COMP-AMS calls it Block-Sign (`fedcomp.flower.FedAMS`).
    """
    return Signs(), LevelsCode(), LinearFeedback()


@register("Tang et al., ICML 2019, arXiv:1905.05957")
def doublesqueeze(codec: str = "sign", density: float | None = None) -> Parts:
    """Return DoubleSqueeze's compressor, meant for both directions: error feedback on the nodes and on the server.

    `codec` is one of three.  "sign": one bit an entry and each tensor's mean magnitude.  "topk" with a `density` (0.0269 if
    none is given: 300,000 of ResNet-18's entries).  "random": each entry v is sent with the probability |v| / max |v| of its
    tensor, as a sign and |v|^2 / |v|_1.

    Tang, Yu, Lian, Zhang, Liu, ICML 2019, arXiv:1905.05957, but with the magnitudes of least error.  In the paper, the
    magnitude of the signs keeps the norm, and the magnitude of the random codec is max |v|, with which residuals are many
    times larger.
    """
    check_choice("codec", codec, ("sign", "topk", "random"))
    if codec == "topk":
        return TopK(0.0269 if density is None else density), SparseValues(), LinearFeedback()
    if density is not None:
        raise ValueError(f"density is {density!r}; only codec='topk' takes one")
    quantizer = TernGrad(0.0, shrunk=True) if codec == "random" else Signs()
    return quantizer, LevelsCode(), LinearFeedback()
