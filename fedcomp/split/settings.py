"""Settings of split training, and the text in which the server's messages hold them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from fedcomp.compressor import Compressor
from fedcomp.core import build, check_bool, check_int, check_range, format_call, use_python_numbers
from fedcomp.errors import CorruptError
from fedcomp.methods import METHODS, cgx, parse

OF_A_SERVER = ("auto", "balanced")
"""Compressors that a server chooses again in each round."""
MAX_BATCH = 1 << 16
MAX_STEPS = 1 << 20
MAX_MOMENTUM = 0.9999
FORWARD, BACKWARD = cgx(bits=4), cgx(bits=8)
Answer = Literal["activations", "weights"]
"""What a message asks for: the activations of the next batch, or the trained lower weights."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """How the two parts train: each node for `steps` batches a round, by SGD, the same on both sides of the cut.

    `forward` compresses the change of activations on the way up, and `backward` the gradients on the way down; neither has a
    memory.  With `direct`, the activations themselves are compressed, without a memory at both ends: the baseline of the paper.
    The momentum of the lower part starts from zero in each round.  A single sample that remains of an epoch joins the batch
    before it.

    `clip` bounds the effect of one node on the parts that all nodes share, as a multiple of the median over the nodes; 0 for no
    bound.  It bounds the gradients of the upper part, and the change of a lower part in a round: that of all trained weights
    together, and apart from them that of each other tensor, such as a statistic of BatchNorm.  With a bound, activations far
    beyond earlier ones are refused, too, and so are steps much longer than the upper part's weights.

    Examples:
        >>> import fedcomp
        >>> from fedcomp.split import SplitSettings
        >>> str(SplitSettings(forward=fedcomp.cgx(bits=2), steps=5))
        "split(forward='cgx(bits=2)', steps=5)"

    """

    forward: Compressor = FORWARD
    backward: Compressor = BACKWARD
    direct: bool = False
    batch_size: int = 32
    steps: int = 10
    learning_rate: float = 0.1
    momentum: float = 0.0
    clip: float = 5.0

    def __post_init__(self) -> None:
        use_python_numbers(self)
        for name, compressor in (("forward", self.forward), ("backward", self.backward)):
            if not isinstance(compressor, Compressor):
                raise ValueError(f"{name} is {compressor!r}; a compressor is needed, such as fedcomp.cgx(bits=2)")
            if compressor.name in OF_A_SERVER:
                raise ValueError(f"{name} is {compressor}, which follows a server's rounds; a fixed method is needed")
            if compressor.init(1):
                raise ValueError(
                    f"{name} is {compressor}, which remembers what it leaves out; one without memory is needed"
                )
        check_bool("direct", self.direct)
        check_int("batch_size", self.batch_size, 1, MAX_BATCH)
        check_int("steps", self.steps, 1, MAX_STEPS)
        check_range("learning_rate", self.learning_rate, above=0)
        check_range("momentum", self.momentum, least=0, most=MAX_MOMENTUM)
        check_range("clip", self.clip, least=0, what="a multiple of the median, 0 for no bound")
        if not self.direct:
            try:
                self.forward.contracting()
            except ValueError as error:
                raise ValueError(f"forward is {self.forward}, and direct is False; {error}") from None

    @property
    def upward(self) -> Compressor:
        """The compressor of the frames up: `forward`, or its contracting form for changes.

        The error of one visit is part of the change at the next visit, so the error has to shrink (AC-SGD, Theorem 3.1).
        """
        return self.forward if self.direct else self.forward.contracting()

    def __str__(self) -> str:
        return self.text("split")

    def text(self, name: str) -> str:
        """Return ``name(...)`` with the settings that differ from the defaults."""
        changed = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        texts = {key: str(value) if isinstance(value, Compressor) else value for key, value in changed.items()}
        return format_call(name, texts)


def parse_request(text: str) -> tuple[Answer, SplitSettings]:
    """Return what a message asks for and the settings; raise `CorruptError` for another text."""
    try:
        return build(text, MAKERS, "request", METHODS)
    except ValueError as error:
        raise CorruptError(str(error)) from None


def parse_split(text: str) -> SplitSettings:
    """Return the settings whose ``str`` is `text`, such as ``"split(forward='cgx(bits=2)', steps=5)"``.

    Compressors may be written as texts or as calls.  Raises `ValueError` for another form, an unknown setting, and settings
    that are not possible.

    Examples:
        >>> from fedcomp.split import parse_split
        >>> parse_split("split(forward=cgx(bits=2), steps=5)").steps
        5

    """
    return build(text, {"split": _split}, "way to train", METHODS)


def _split(forward: str = str(FORWARD), backward: str = str(BACKWARD), **others: Any) -> SplitSettings:
    names = [each.name for each in fields(SplitSettings)]
    if unknown := others.keys() - set(names):
        raise ValueError(f"split has no setting {min(unknown)!r}; its settings are: {', '.join(names)}")
    return SplitSettings(parse(forward), parse(backward), **others)


def _maker(answer: Answer) -> Callable[..., tuple[Answer, SplitSettings]]:
    def make(forward: str = str(FORWARD), backward: str = str(BACKWARD), **others: Any) -> tuple[Answer, SplitSettings]:
        return answer, SplitSettings(parse(forward), parse(backward), **others)

    return make


MAKERS: Mapping[str, Callable[..., tuple[Answer, SplitSettings]]] = {each: _maker(each) for each in get_args(Answer)}
