"""BatchNorm statistics among the tensors of a model.  Compressed like weights, a variance would become negative."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from fedcomp.wire.dtypes import COMPLEX, FLOATS, dtype_of

NAME_END = re.compile(
    r"(^|_)(running_(mean|var)|num_batches_tracked"  # torch, MXNet
    r"|moving_(mean|var|variance))$"  # Keras, MXNet
    r"|^_(mean|variance)$"  # Paddle
)
"""How the last part of the name of a statistic ends."""
NAME_PARTS = {"batch_stats", "mean_ema", "var_ema"}
"""Parts anywhere in the names of statistics, of Flax and of Haiku."""
PAIR = ("mean", "var")
"""The last parts of the names of two statistics of one layer, as in Flax NNX."""
VECTORS_PER_LAYER = 4
"""The vectors of a BatchNorm layer: scale, shift, mean and variance, in this order in torch, Keras and others."""
WITHOUT_SCALE = 3
"""The vectors of a layer without a scale: shift, mean and variance."""


def batchnorm_statistics(arrays: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return the names of the tensors that are BatchNorm statistics.

    They are recognised by their names, and in a list of arrays, whose names are ``"0"``, ``"1"``, ..., by their place:

    * the two vectors before a scalar integer, which counts batches in torch;
    * of four vectors of one length and dtype in a row, the last two; of eight, the last two of each half; and so on;
    * of three, the last two, and of any other number above four all but the first two, because it is not certain which are the
      statistics.

    Values do not count, so all models of one kind have the same layout.  Other vectors that look the same, such as those of a
    bias and a LayerNorm in a row, then travel exactly, too.
    """
    parts = {
        name: [part for part in re.split(r"[^A-Za-z0-9_]+", re.sub(r":\d+$", "", name)) if part] for name in arrays
    }
    paths = {tuple(each) for each in parts.values()}
    found = {
        name
        for name, each in parts.items()
        if each
        and (
            NAME_END.search(each[-1])
            or not NAME_PARTS.isdisjoint(each)
            or (each[-1] in PAIR and all((*each[:-1], last) in paths for last in PAIR))
        )
    }
    if list(arrays) == [str(place) for place in range(len(arrays))]:
        found |= {str(place) for place in _in_list(list(arrays.values()))}
    return found


def _in_list(arrays: Sequence[NDArray[Any]]) -> Iterator[int]:
    """Yield the places of statistics in a list."""
    for start, stop in _runs(arrays):
        counted = stop < len(arrays) and arrays[stop].ndim == 0 and arrays[stop].dtype.kind in "iu"
        if counted and stop - start >= len(PAIR):
            yield from (stop - 2, stop - 1)
        elif (stop - start) % VECTORS_PER_LAYER == 0:
            for end in range(stop, start, -VECTORS_PER_LAYER):
                yield from (end - 2, end - 1)
        elif stop - start == WITHOUT_SCALE:
            yield from (stop - 2, stop - 1)
        elif stop - start > VECTORS_PER_LAYER:
            yield from range(start + 2, stop)


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
