"""The body of an update or of a version: it holds the tensors that have something to send, and of masked ones the free entries.

A tensor without a change, of which the memory holds nothing either, is no part of the vector that the compressor sees: its
entries keep their bits, cost nothing, and count in no density, scale or rotation.
"""

from typing import Any

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.errors import NonFiniteError
from fedcomp.memory import State
from fedcomp.quantized import Indices
from fedcomp.wire import Layout, Selection, changed_tensors, codec_id, some_tensors, tightened

SELECTED = "selected_tensors"
"""The name, beside the arrays of a memory, of the bits that say which tensors its last message held."""


def check_masked(compressor: Compressor) -> None:
    """Raise `ValueError` for a compressor that cannot send updates of masked models.

    Its state must be a number for each entry, or nothing: when the mask changes, entries have other places among those sent.
    """
    if others := compressor.init(1).keys() - set(compressor.memory.vectors):
        raise ValueError(
            f"the model has a mask, and {compressor} keeps its {', '.join(sorted(others))} for the whole model; "
            "a compressor that keeps nothing, or a residual, is needed"
        )


def encode_change(
    compressor: Compressor,
    change: Any,
    memory: State,
    layout: Layout,
    changeable: Indices | None = None,
    *,
    model: Vector,
    **arguments: Any,
) -> tuple[int, bytes, State]:
    """Return the codec id and the body of `change`, and the arrays of the memory after it.

    Args:
        compressor: Gets the selected entries as one vector, with the `arguments` of `Compressor.encode`.
        change: A numpy vector or a torch tensor, float32 (n,).
        memory: The arrays of this compressor, and perhaps of others; those of this one are spent.
        layout: That of the model.
        changeable: The entries that masks leave free, int64 (k,) ascending; None without masks.  What the memory holds of the
            others is dropped, as they no longer belong to the model.
        model: The vector that the change starts from, float32 (n,).
        **arguments: The seed, the round and what else `Compressor.encode` takes.

    Raises:
        ValueError: `check_masked` refuses the compressor, or `change` cannot be encoded; the memory is unchanged.

    """
    if changeable is not None:
        check_masked(compressor)
    state = compressor.select(memory, layout.n)
    selection = _selection(compressor, change, state, layout, changeable)
    if not selection.n:
        return (*some_tensors(selection), state)
    bits, last = selection.to_bytes(), memory.get(SELECTED)
    has_moved = last is None or last.tobytes() != bits
    vectors = compressor.memory.vectors
    inner = {
        name: selection.take(array) if name in vectors else _kept(compressor, name, array, has_moved=has_moved)
        for name, array in state.items()
    }
    try:
        body, inner = compressor.encode(
            selection.take(change), inner, shapes=selection.shapes, model=selection.take(model), **arguments
        )
    except NonFiniteError as error:
        raise layout.explain(NonFiniteError(selection.index_of(error.index), error.value)) from None
    new = {name: selection.put(array, state[name]) if name in vectors else array for name, array in inner.items()}
    if any(not array.size for array in compressor.init(1).values()):
        new[SELECTED] = np.frombuffer(bits, np.uint8).copy()
    codec, body = tightened(codec_id(compressor.entropy), body, selection.n)
    return (codec, body, new) if selection.is_whole else (*some_tensors(selection, codec, body), new)


def _selection(
    compressor: Compressor, change: Any, state: State, layout: Layout, changeable: Indices | None
) -> Selection:
    """Return the tensors that changed, or of which the memory holds anything."""
    vectors = [state[name] for name in compressor.memory.vectors]
    selection = Selection(layout, changed_tensors(layout, [change, *vectors]), changeable)
    if not selection.n and compressor.memory.incremental:
        return Selection.all(layout, changeable)  # a receiver counts each message of an estimate
    return selection


def _kept(compressor: Compressor, name: str, array: Any, *, has_moved: bool) -> Any:
    """Return an array of the state that is no vector; where other tensors are selected, nothing of the last message's entries.

    That is what a memory without a message has as an empty array: the entries that were sent, their factors.
    """
    fresh = compressor.init(1)[name]
    return fresh if has_moved and not fresh.size else array
