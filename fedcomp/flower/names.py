"""Which tensor of a reply, or of a strategy's result, is which one of the model: by name, or for lists by position."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from flwr.app import Array, ArrayRecord

from fedcomp.core import listed
from fedcomp.flower.compat import record_of
from fedcomp.wire import Layout

MAX_NAMES_SHOWN = 20
"""The most names of one list in an error."""
Names = dict[str, str]
"""Name in the reply -> name in the model."""
Kind = tuple[tuple[int, ...], str]
"""The shape and the kind of the dtype."""


@dataclass(frozen=True, slots=True)
class Match:
    """A reply's arrays under the names of the model; `how` says how other names were matched, empty for the same names."""

    record: ArrayRecord
    how: str = ""


def match_names(record: Mapping[str, Array], layout: Layout, *, from_node: bool = True) -> Match:
    """Return the Arrays of `record` under the names of the model in `layout`.

    They have the same names, in any order; or the same ones once a common prefix or suffix is taken off one side, or one
    separator is exchanged; or one side is a list (names that are the numbers 0, 1, ...), and the shapes and kinds of dtypes of
    both are equal in order.  Local tensors may be missing, and so may all names but one of tied tensors.

    Raises `ValueError` with both lists of names if nothing matches, or if several ways do, with different results; `from_node`
    decides which advice it holds.
    """
    if _is_complete(record.keys(), layout):
        return Match(_with_ties(record, layout))
    ways: dict[tuple[tuple[str, str], ...], str] = {}
    for how, names in _ways(record, layout):
        if len(set(names.values())) == len(names) and _is_complete(names.values(), layout):
            ways.setdefault(tuple(names.items()), how)
    if len(ways) > 1:  # shapes decide
        shapes = {tensor.name: tensor.shape for tensor in layout.tensors}
        fitting = {n: how for n, how in ways.items() if all(tuple(record[f].shape) == shapes[to] for f, to in n)}
        ways = fitting or ways
    if len(ways) != 1:
        raise ValueError(_difference(record, layout, list(ways.values()), from_node=from_node))
    ((pairs, how),) = ways.items()
    return Match(_with_ties({to: record[found] for found, to in pairs}, layout), how)


def _is_complete(names: Collection[str], layout: Layout) -> bool:
    """Return whether `names` are of tensors of the model, and of all that a reply must hold."""
    sources = {tensor.name: tensor.tied_to or tensor.name for tensor in layout.tensors}
    needed = {tensor.name for tensor in layout.tensors if tensor.policy not in ("local", "tied")}
    return all(name in sources for name in names) and needed <= {sources[name] for name in names}


def _ways(record: Mapping[str, Array], layout: Layout) -> Iterator[tuple[str, Names]]:
    """Yield each way in which the names could be matched, which may be none, and what it does."""
    found, names = list(record), [tensor.name for tensor in layout.tensors]
    yield from _without_ends(found, names)
    yield from _with_other_separators(found, names)
    yield from _by_position(record, layout)


def _without_ends(found: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, Names]]:
    """Yield what remains if a prefix or a suffix is taken off all names of one side."""
    longest, known = max(found, key=len, default=""), set(names)
    for name in names:  # the longest name of the reply is one of them with, or without, that end
        longer, shorter = max(longest, name, key=len), min(longest, name, key=len)
        cut = len(longer) - len(shorter)
        for kind, matches, end in (
            ("prefix", longer.endswith(shorter), longer[:cut]),
            ("suffix", longer.startswith(shorter), longer[len(shorter) :]),
        ):
            if not (cut and shorter and matches):
                continue
            if longer is longest:
                remove = str.removeprefix if kind == "prefix" else str.removesuffix
                shorn = {each: remove(each, end) for each in found}
                if all(shorn[each] != each for each in found) and known.issuperset(shorn.values()):
                    yield f"without the {kind} {end!r} of the reply's names", shorn
            else:
                grown = {each: end + each if kind == "prefix" else each + end for each in found}
                if known.issuperset(grown.values()):
                    yield f"without the {kind} {end!r} of the model's names", grown


def _with_other_separators(found: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, Names]]:
    """Yield what remains if a separator is replaced in all names of one side."""
    for one, other in product(_separators(found), _separators(names)):
        how = f"with {other!r} in place of {one!r} in the reply's names"
        yield how, {name: name.replace(one, other) for name in found}
        back = {name.replace(other, one): name for name in names}
        if len(back) == len(names) and back.keys() >= set(found):
            yield how, {name: back[name] for name in found}


def _separators(names: Sequence[str]) -> list[str]:
    runs = {run for name in names for run in re.findall(r"[\W_]+", name)}
    return sorted(runs | {character for run in runs for character in run})


def _by_position(record: Mapping[str, Array], layout: Layout) -> Iterator[tuple[str, Names]]:
    found = [(tuple(array.shape), _kind(array.dtype)) for array in record.values()]
    sent = tuple(tensor for tensor in layout.tensors if tensor.policy != "local")
    for tensors in (layout.tensors, sent):
        names = [tensor.name for tensor in tensors]
        if not (_is_list(list(record)) or _is_list(names)):
            continue
        kinds = [(tensor.shape, _kind(tensor.dtype)) for tensor in tensors]
        if len(found) == len(kinds) and all(_fits(*pair) for pair in zip(found, kinds, strict=True)):
            yield "by position, since one side is a list of arrays", dict(zip(record, names, strict=True))


def _fits(found: Kind, model: Kind) -> bool:
    """Return whether a list may hold such an array for a tensor of the model: means of integers are floats."""
    return found == model or (found[0] == model[0] and found[1] == "float" and np.dtype(model[1]).kind in "iub")


def _is_list(names: Sequence[str]) -> bool:
    return list(names) == [str(index) for index in range(len(names))]


def _kind(dtype: str) -> str:
    """Return "float" for all real floating dtypes, in whatever byte order, and the name of others."""
    if "float" in dtype:
        return "float"
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        return dtype
    return "float" if parsed.kind == "f" else str(parsed.newbyteorder("="))


def _with_ties(record: Mapping[str, Array], layout: Layout) -> ArrayRecord:
    """Return `record` in the model's order; each tied tensor has all its names."""
    values = {tensor.tied_to or tensor.name: record[tensor.name] for tensor in layout.tensors if tensor.name in record}
    sources = {tensor.name: tensor.tied_to or tensor.name for tensor in layout.tensors}
    return record_of({name: record.get(name, values[source]) for name, source in sources.items() if source in values})


def _difference(record: Mapping[str, Array], layout: Layout, ways: Sequence[str], *, from_node: bool) -> str:
    """Return how the names of a reply differ from the model's, and what is needed."""
    names = {tensor.name for tensor in layout.tensors}
    sent = [t.name for t in layout.tensors if t.policy != "local" and t.name not in record]
    unexpected = [name for name in record if name not in names]
    text = f"tensors differ from the model's: missing {_shown(sent)}, unexpected {_shown(unexpected)}"
    if ways:
        return f"{text}; they match in several ways that differ: {', or '.join(ways)}; send the names that came"
    if not unexpected and from_node:
        return f"{text}; if these stay on the nodes, name them: CompressedStrategy(..., local={_shown(sent)})"
    if not sent and from_node:
        return f"{text}; put what is no part of the model into a record of its own"
    needed = (
        f"{text}; needed are the names that came, or these with one more prefix, suffix or other separator in all of them, "
        "or a list of arrays in the model's order and shapes"
    )
    return f"{needed}; what is not part of the model belongs in a record of its own" if from_node else needed


def _shown(names: Sequence[str]) -> str:
    return f"[{listed([repr(name) for name in names], MAX_NAMES_SHOWN)}]"
