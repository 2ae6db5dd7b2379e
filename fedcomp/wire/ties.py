"""Tied tensors: several names for one tensor, such as an embedding that is also the output layer.

A state dict holds the values once for each name.  A layout says which names mean one tensor: then the values travel once.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import is_numpy
from fedcomp.wire.dtypes import to_numpy
from fedcomp.wire.tensor import Tensor


def tie(tensors: Sequence[Tensor], groups: Iterable[Iterable[str]]) -> tuple[Tensor, ...]:
    """Return `tensors`, with each name of a group tied to the first name of the group in the model's order.

    Raises `ValueError` unless the tensors of a group are compressed and of one shape and dtype, and for a name in two groups.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    sources: dict[str, str] = {}
    for group in groups:
        names = [group] if isinstance(group, str) else list(group)
        if len(set(names)) < 2:
            raise ValueError(f"the tied names {names!r}; groups of two names or more are needed, as [('a', 'b')]")
        if unknown := [name for name in names if name not in by_name]:
            raise ValueError(f"no tensor has the tied name {unknown[0]!r}; the tensors are {', '.join(by_name)}")
        if twice := sources.keys() & names:
            raise ValueError(f"the tensor {min(twice)!r} is in two groups of tied tensors; one is needed")
        first, *others = sorted((by_name[name] for name in set(names)), key=tensors.index)
        if first.policy != "compressed" or any(replace(other, name=first.name) != first for other in others):
            raise ValueError(f"the tensors {names} cannot be tied: compressed ones of one shape and dtype are needed")
        sources |= {tensor.name: first.name for tensor in (first, *others)}
    return tuple(
        replace(tensor, policy="tied", tied_to=sources[tensor.name])
        if sources.get(tensor.name, tensor.name) != tensor.name
        else tensor
        for tensor in tensors
    )


def are_possible(tensors: Sequence[Tensor]) -> bool:
    """Return whether every tied tensor names a compressed tensor of its shape and dtype."""
    sources = {tensor.name: (tensor.shape, tensor.dtype) for tensor in tensors if tensor.policy == "compressed"}
    return all(sources.get(t.tied_to) == (t.shape, t.dtype) for t in tensors if t.policy == "tied")


def check_ties(tensors: Sequence[Tensor], arrays: Mapping[str, Any]) -> None:
    """Raise `ValueError` if tied tensors hold different values in `arrays`, numpy arrays or torch tensors."""
    for tensor in tensors:
        if tensor.policy == "tied" and not _are_equal(arrays[tensor.name], arrays[tensor.tied_to]):
            raise ValueError(
                f"the tensors {tensor.tied_to!r} and {tensor.name!r} are declared as tied, but hold different values; "
                "take them out of the argument `tied` of CompressedStrategy"
            )


def _are_equal(first: Any, second: Any) -> bool:
    if is_numpy(first) or is_numpy(second) or first.device != second.device or first.shape != second.shape:
        return np.array_equal(to_numpy(first), to_numpy(second))
    return bool((first == second).all())


def probable_ties(tensors: Sequence[Tensor], arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    """Return the groups of compressed tensors whose values in `arrays` are equal, but not constant, in the model's order.

    Only the author of the model knows whether they are one tensor: copies of a layer are equal at the start, too.
    """
    candidates = [tensor for tensor in tensors if tensor.policy == "compressed" and tensor.size]
    kinds = Counter((tensor.shape, tensor.dtype) for tensor in candidates)
    groups: dict[tuple[object, ...], list[str]] = {}
    for tensor in candidates:
        data = arrays[tensor.name].tobytes() if kinds[tensor.shape, tensor.dtype] > 1 else b""
        if data != data[: tensor.array_dtype.itemsize] * tensor.size:  # more than its first entry again and again
            digest = hashlib.blake2b(data, digest_size=16).digest()
            groups.setdefault((tensor.shape, tensor.dtype, digest), []).append(tensor.name)
    return [tuple(names) for names in groups.values() if len(names) > 1]
