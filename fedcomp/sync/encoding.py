"""The body of an update or of a version: the tensors that have something to send, and of masked tensors the free entries.

The compressor does not see a tensor that has no change and nothing in the memory.  The entries of this tensor keep their bits
and cost nothing, and no density, scale or rotation depends on them.
"""

from typing import Any

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.errors import NonFiniteError
from fedcomp.memory import State
from fedcomp.quantized import Indices
from fedcomp.wire import Layout, Selection, changed_tensors, codec_id, some_tensors

MASK_64 = (1 << 64) - 1
SELECTED = "selected_tensors"
"""The name under which a memory keeps a bit for each tensor: whether its last message held it."""


def check_masked(compressor: Compressor) -> None:
    """Raise `ValueError` for a compressor that cannot send updates of masked models.

    Its state must be one number per entry, or nothing: when the mask changes, entries change their places in the sent vector.
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
    moved: Any = None,
    **arguments: Any,
) -> tuple[int, bytes, State]:
    """Return the codec id and the body of `change`, and the arrays of the memory after it.

    Some memories describe their last message, such as the entries that RegTop-k sent.  In a fresh memory, these arrays are
    empty.  They are dropped if this message holds other tensors than the last one.  Arrays of int64 are indices in the whole
    vector.

    Args:
        compressor: Gets the selected entries as one vector, with the `arguments` of `Compressor.encode`.
        change: A numpy vector or a torch tensor, float32 (n,).
        memory: The arrays of this compressor, which are spent, and perhaps arrays of other compressors.
        layout: The layout of the model.
        changeable: The entries that masks leave free, int64 (k,) ascending; None without masks.  The memory of the other
            entries is dropped, because they no longer belong to the model.
        moved: A vector like `change`; tensors in which it is zero are left out.  By default `change` itself.
        **arguments: The seed, the model and other arguments of `Compressor.encode`.

    Raises:
        ValueError: `check_masked` refuses the compressor, or `change` cannot be encoded; the memory is unchanged.

    """
    if changeable is not None:
        check_masked(compressor)
    state = compressor.select(memory, layout.n)
    selection = _selection(compressor, change if moved is None else moved, state, layout, changeable)
    fresh = compressor.init(1)
    of_message = {name for name, array in fresh.items() if not array.size}
    if not selection.n:
        return (*some_tensors(selection), state | {name: fresh[name] for name in of_message})
    bits, last = selection.to_bytes() if of_message else b"", memory.get(SELECTED)
    has_moved = last is None or last.tobytes() != bits
    vectors = compressor.memory.vectors
    places = {name for name in of_message if fresh[name].dtype == np.int64}
    inner = {name: selection.take(state[name]) if name in vectors else state[name] for name in state}
    inner |= (
        {name: fresh[name] for name in of_message}
        if has_moved
        else {name: selection.numbers_of(state[name]) for name in places}
    )
    if "model" in arguments:
        arguments["model"] = selection.take(arguments["model"])
    try:
        body, inner = compressor.encode(selection.take(change), inner, shapes=selection.shapes, **arguments)
    except NonFiniteError as error:
        index = int(selection.indices_of(np.array([error.index]))[0])
        raise layout.explain(NonFiniteError(index, error.value)) from None
    new = {name: selection.put(array, state[name]) if name in vectors else array for name, array in inner.items()}
    new |= {name: selection.indices_of(new[name]) for name in places}
    if of_message:
        new[SELECTED] = np.frombuffer(bits, np.uint8).copy()
    codec = codec_id(compressor.entropy)
    return (codec, body, new) if selection.is_whole else (*some_tensors(selection, codec, body), new)


def _selection(
    compressor: Compressor, moved: Any, state: State, layout: Layout, changeable: Indices | None
) -> Selection:
    """Return the tensors that changed, and the tensors for which the memory holds anything."""
    vectors = [state[name] for name in compressor.memory.vectors]
    selection = Selection(layout, changed_tensors(layout, [moved, *vectors]), changeable)
    if not selection.n and compressor.memory.incremental:
        # A receiver counts each message of an estimate.
        return Selection(layout, np.ones_like(selection.tensors), changeable)
    return selection


def derive_seed(*parts: int) -> int:
    """Return a seed, 0 to 2^64 - 1, that depends on all `parts`; parts below 0 or from 2^64 on are taken modulo 2^64."""
    words = [int(part) & MASK_64 for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
