"""Updates of a masked model: both sides know which entries may change, so that only their values are sent."""

from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.errors import NonFiniteError
from fedcomp.memory import State
from fedcomp.quantized import Indices
from fedcomp.wire import Layout


def check_masked(compressor: Compressor) -> None:
    """Raise `ValueError` for a compressor that cannot send updates of masked models.

    Its state must be a number for each entry, or nothing: when the mask changes, entries have other places among those sent.
    """
    if others := compressor.init(1).keys() - set(compressor.memory.vectors):
        raise ValueError(
            f"the model has a mask, and {compressor} keeps its {', '.join(sorted(others))} for the whole model; "
            "a compressor that keeps nothing, or a residual, is needed"
        )


def encode_update(
    compressor: Compressor,
    change: Any,
    state: State,
    layout: Layout,
    changeable: Indices | None,
    *,
    model: Vector,
    **arguments: Any,
) -> tuple[bytes, State]:
    """Return the body of `change` and the state after it, as `Compressor.encode` does with the `arguments`.

    `change` is a numpy vector or a torch tensor, float32 (n,).  With `changeable`, int64 (k,) ascending, the body holds these
    entries alone, as the update of k entries that they are.  The state stays that of n entries; what it held of the others is
    dropped, as they no longer belong to the model.

    Raises `ValueError` as `check_masked` does.
    """
    if changeable is None:
        return compressor.encode(change, state, shapes=layout.shapes, model=model, **arguments)
    check_masked(compressor)
    ends = np.searchsorted(changeable, [part.stop for _, part in layout.parts])
    shapes = tuple((int(count),) for count in np.diff(ends, prepend=0) if count)
    inner = {name: arithmetic.at(changeable, array) for name, array in state.items()}
    try:
        body, inner = compressor.encode(
            arithmetic.at(changeable, change), inner, shapes=shapes, model=model[changeable], **arguments
        )
    except NonFiniteError as error:
        raise NonFiniteError(int(changeable[error.index]), error.value) from None
    whole = {name: np.zeros(layout.n, np.float32) for name in inner}
    for name, array in inner.items():
        whole[name][changeable] = array
    return body, whole
