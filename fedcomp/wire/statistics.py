"""BatchNorm statistics among the tensors of a model.  Compressed like weights, a variance would become negative."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from fedcomp.wire.dtypes import COMPLEX, FLOATS, dtype_of

LAST_WORDS = {
    "running_mean",  # torch, MXNet
    "running_var",
    "num_batches_tracked",
    "moving_mean",  # Keras
    "moving_variance",
    "_mean",  # Paddle
    "_variance",
}
"""The last words of the names of statistics."""
WORDS = {"batch_stats", "mean_ema", "var_ema"}
"""Words anywhere in the names of statistics, of Flax and of Haiku."""
PAIR = ("mean", "var")
"""The last words of two tensors with one prefix, as in Flax NNX."""
VECTORS = 4
"""The vectors of a BatchNorm layer: scale, shift, mean and variance, in the order of torch, Keras and others."""


def batchnorm_statistics(arrays: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return the names of the tensors that are BatchNorm statistics.

    They are recognised by their names, and in a list of arrays, whose names are ``"0"``, ``"1"``, ..., by their place: of four
    vectors of one length in a row, the last two are statistics, and so are two vectors before a scalar integer, which counts
    batches.  Values do not count, so all models of one kind have the same layout.  Other vectors that look the same, such as
    those of two LayerNorms in a row, then travel exactly, too: that costs bytes, but no accuracy.
    """
    words = {name: re.split(r"[./~]", re.sub(r":\d+$", "", name)) for name in arrays}
    paths = {tuple(each) for each in words.values()}
    found = {name for name, each in words.items() if each[-1] in LAST_WORDS or not WORDS.isdisjoint(each)}
    found |= {
        name for name, each in words.items() if each[-1] in PAIR and all((*each[:-1], last) in paths for last in PAIR)
    }
    if list(arrays) == [str(place) for place in range(len(arrays))]:
        found |= {str(place) for place in _in_list(list(arrays.values()))}
    return found


def _in_list(arrays: Sequence[NDArray[Any]]) -> Iterator[int]:
    """Yield the places of statistics in a list."""
    for start, stop in _runs(arrays):
        counted = stop < len(arrays) and arrays[stop].ndim == 0 and arrays[stop].dtype.kind in "iu"
        if counted and stop - start >= 2:
            yield from (stop - 2, stop - 1)
        else:
            for end in range(stop, start + VECTORS - 1, -VECTORS):
                yield from (end - 2, end - 1)


def _runs(arrays: Sequence[NDArray[Any]]) -> Iterator[tuple[int, int]]:
    """Yield where each run of vectors of floats with one length and dtype begins and ends."""
    kinds = [(array.shape, array.dtype) if array.ndim == 1 and _is_float(array) else None for array in arrays]
    start = 0
    for place in range(1, len(kinds) + 1):
        if place == len(kinds) or kinds[place] != kinds[start]:
            if kinds[start] is not None:
                yield start, place
            start = place


def _is_float(array: NDArray[Any]) -> bool:
    return dtype_of(array) in (*FLOATS, *COMPLEX)
