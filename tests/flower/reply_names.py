"""Cases of a reply whose names are not those of the model: what is matched, and what is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NameCase:
    """The names of a model and of a reply, all of one shape.

    `expected` are the names in the reply that are taken, by those of the model; none if it is refused, in a sentence that holds
    `says`.
    """

    title: str
    model: Sequence[str]
    reply: Sequence[str]
    expected: Mapping[str, str] = field(default_factory=dict[str, str])
    local: Sequence[str] = ()
    tied: Sequence[Sequence[str]] = ()
    says: str = ""


def _case(title: str, expected: Mapping[str, str], order: Sequence[str], **settings: Sequence[str]) -> NameCase:
    return NameCase(title, list(expected), order, expected, **settings)  # type: ignore[arg-type]


TWO = ["b.w", "a.w"]
TIED = [("in.w", "out.w")]
MATCHED = [
    _case("the same names in another order", {"b.w": "b.w", "a.w": "a.w"}, ["a.w", "b.w"]),
    _case("a prefix", {"b.w": "module.b.w", "a.w": "module.a.w"}, ["module.a.w", "module.b.w"]),
    _case("a prefix of the model", {"module.b.w": "b.w", "module.a.w": "a.w"}, ["a.w", "b.w"]),
    _case("a prefix without a separator", {"b.w": "netb.w", "a.w": "neta.w"}, ["neta.w", "netb.w"]),
    _case(
        "two prefixes are one",
        {"b.w": "x._orig_mod.b.w", "a.w": "x._orig_mod.a.w"},
        ["x._orig_mod.a.w", "x._orig_mod.b.w"],
    ),
    _case("a suffix", {"b.w": "b.w:0", "a.w": "a.w:0"}, ["a.w:0", "b.w:0"]),
    _case("a suffix of the model", {"b.w:0": "b.w", "a.w:0": "a.w"}, ["a.w", "b.w"]),
    _case("another separator", {"b.w": "b/w", "a.w": "a/w"}, ["a/w", "b/w"]),
    _case("another separator of two characters", {"b.w": "b::w", "a.w": "a::w"}, ["a::w", "b::w"]),
    _case("points as underscores", {"bn.run_mean": "bn_run_mean", "a.w": "a_w"}, ["a_w", "bn_run_mean"]),
    _case("underscores as points", {"bn_run_mean": "bn.run.mean", "a_w": "a.w"}, ["a.w", "bn.run.mean"]),
    _case(
        "names that a prefix makes names of the model",
        {"w": "m.w", "m.w": "m.m.w"},
        ["m.m.w", "m.w"],
    ),
    _case("names that are numbers, in another order", {"0": "0", "1": "1"}, ["1", "0"]),
    _case("a list of arrays", {"b.w": "0", "a.w": "1"}, ["0", "1"]),
    _case("a state dict for a list of arrays", {"0": "b.w", "1": "a.w"}, ["b.w", "a.w"]),
    NameCase(
        "a list of arrays without a local tensor",
        ["b.w", "head", "a.w"],
        ["0", "1"],
        {"b.w": "0", "a.w": "1"},
        local=["head"],
    ),
    NameCase(
        "a prefix, without a local tensor",
        ["a.very.long.name", "b.w", "a.w"],
        ["m.a.w", "m.b.w"],
        {"b.w": "m.b.w", "a.w": "m.a.w"},
        local=["a.very.long.name"],
    ),
    NameCase(
        "tied tensors under one of their names",
        ["in.w", "a.w", "out.w"],
        ["a.w", "out.w"],
        {"in.w": "out.w", "a.w": "a.w", "out.w": "out.w"},
        tied=TIED,
    ),
    NameCase(
        "tied tensors under one of their names and a prefix",
        ["in.w", "a.w", "out.w"],
        ["m.a.w", "m.in.w"],
        {"in.w": "m.in.w", "a.w": "m.a.w", "out.w": "m.in.w"},
        tied=TIED,
    ),
]
REFUSED = [
    NameCase("other names", TWO, ["d.w", "c.w"], says="list of arrays"),
    NameCase("a prefix of some names", TWO, ["m.b.w", "a.w"]),
    NameCase("a prefix and a separator", TWO, ["m/b/w", "m/a/w"]),
    NameCase("a prefix and a suffix", TWO, ["m.b.w:0", "m.a.w:0"]),
    NameCase("two separators", ["b.w_x", "a.w_x"], ["b/w-x", "a/w-x"]),
    NameCase("separators that make two names one", ["a.b", "a_b"], ["a/b", "a|b"]),
    NameCase("a part", TWO, ["a.w"], says="local=['b.w']"),
    NameCase("a part under a prefix", TWO, ["m.a.w"]),
    NameCase("a tensor more", TWO, ["a.w", "b.w", "c.w"], says="record of its own"),
    NameCase("a tensor more under a prefix", TWO, ["m.a.w", "m.b.w", "m.c.w"]),
    NameCase("a prefix and the same name", TWO, ["m.a.w", "m.b.w", "a.w"]),
    NameCase("a list of fewer arrays", TWO, ["0"]),
    NameCase("a list of more arrays", TWO, ["0", "1", "2"]),
    NameCase("numbers that are no list", TWO, ["1", "0"]),
    NameCase("numbers that do not begin at 0", TWO, ["1", "2"]),
    NameCase("nothing", TWO, []),
    NameCase("a tied tensor under no name", ["in.w", "a.w", "out.w"], ["a.w"], tied=TIED),
]
