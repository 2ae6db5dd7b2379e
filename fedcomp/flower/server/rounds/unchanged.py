"""Tensors that no node of a round changed, such as a frozen backbone: they keep their bits, and a log line counts them."""

from collections.abc import Sequence
from logging import INFO

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, block_slices, listed
from fedcomp.flower.compat import log
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.sync import Replica
from fedcomp.wire import Layout, Tensor, TensorFlags, bfloat16_to_float32, selected_entries

ROUNDING = 2.0**-20
"""The largest change of a weight, in units of the weight, that counts as a rounding error of the strategy's arithmetic."""
LEAST = float(np.finfo(np.float32).tiny)
"""The largest change that counts as a rounding error of any weight, however small: below it, float32 has fewer digits."""
NARROW = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The unit in the last place of 1 in those dtypes whose rounding is coarser than `ROUNDING`."""
UNITS = 2
"""The most units in the last place by which a mean of equal numbers may differ from them."""
MAX_NAMES = 5
"""The most names of tensors in a log line."""
LEAST_BYTES = 1024
"""The least size of unchanged exact tensors that is worth a log line."""


def unchanged_tensors(replies: Sequence[ValidatedReply], published: Replica) -> TensorFlags:
    """Return which compressed tensors no reply changes, bool (t,); none if no reply holds an update."""
    updates = [reply.update for reply in replies if reply.update is not None]
    tensors = np.full(len(published.layout.filled), bool(updates))
    for update in updates:
        tensors &= False if update.tensors is None else ~update.tensors
    return tensors


def keep_unchanged(
    change: Vector, exact: bytes, unchanged: TensorFlags, replies: Sequence[ValidatedReply], published: Replica
) -> bytes:
    """Set `change`, float32 (n,), to zero where nothing may move; return the `exact` tensors with the same law.

    That is in each `unchanged` tensor (`unchanged_tensors`) that the strategy moves by rounding alone: a mean of equal weights
    may differ from them in the last bit.  A strategy may also move such a tensor on purpose, by its momentum or its noise: then
    the change stays.  And it is outside the masks, those published and those in the next `exact` tensors: noise is made for all
    entries of a tensor.
    """
    layout = published.layout
    before, after = layout.changeable(published.exact), layout.changeable(exact)
    if before is not None and after is not None:
        fixed = np.ones(layout.n, np.bool_)
        fixed[before] = fixed[after] = False
        change[fixed] = 0
    for (_, part), is_unchanged in zip(layout.filled, unchanged, strict=True):
        if is_unchanged and _is_rounding(change[part], published.vector[part]):
            change[part] = 0
    return _with_kept(exact, replies, published)


def _with_kept(exact: bytes, replies: Sequence[ValidatedReply], published: Replica) -> bytes:
    """Return `exact` with the published bytes of each tensor that no reply changes, and the strategy by rounding alone.

    If no byte differs, the published object itself is returned, so that all versions share its memory.
    """
    if exact == published.exact:
        return published.exact
    kept, sent = bytearray(exact), [reply.update.exact for reply in replies if reply.update is not None]
    for tensor, part in published.layout.exact_parts:
        before = published.exact[part]
        if sent and all(each[part] == before for each in sent) and _is_rounding_of(tensor, exact[part], before):
            kept[part] = before
    result = bytes(kept)
    return published.exact if result == published.exact else result


def _is_rounding_of(tensor: Tensor, after: bytes, before: bytes) -> bool:
    """Return whether the bytes `after` of a tensor differ from those `before` by a few units in the last place of its dtype."""
    new, old = (_numbers(tensor, each) for each in (after, before))
    tolerance = max(ROUNDING, UNITS * NARROW[tensor.dtype]) if tensor.dtype in NARROW else ROUNDING
    if tensor.array_dtype.kind in "iub":
        tolerance = UNITS * float(np.finfo(np.float64).eps)  # their mean is float64
    return bool((np.abs(new - old) <= np.maximum(tolerance * np.abs(old), LEAST)).all())


def _numbers(tensor: Tensor, data: bytes) -> NDArray[np.float64]:
    array = np.frombuffer(data, tensor.wire_dtype)
    return (bfloat16_to_float32(array) if tensor.dtype == "bfloat16" else array).astype(np.float64)


def _is_rounding(change: Vector, weights: Vector) -> bool:
    return all(
        bool((np.abs(change[block]) <= np.maximum(ROUNDING * np.abs(weights[block]), LEAST)).all())
        for block in block_slices(change.size)
    )


def log_unchanged(unchanged: TensorFlags, layout: Layout) -> None:
    """Log how many entries no node of the first round changed, if there are any."""
    found = list(selected_entries(layout, unchanged))
    if found:
        count, names = sum(size for _, size in found), [name for name, _ in found]
        text = (
            "fedcomp: no node changed %s of the %s entries: %s; such tensors keep their bits, and after the first model they "
            "cost no traffic"
        )
        log(INFO, text, f"{count:,}", f"{layout.n:,}", listed(names, MAX_NAMES))


def log_unchanged_exact(exact: bytes, published: Replica) -> None:
    """Log which `exact` tensors of the first round no node changed, if they travel because others changed."""
    parts = published.layout.exact_parts if exact != published.exact else ()
    found = [(tensor.name, len(exact[part])) for tensor, part in parts if exact[part] == published.exact[part]]
    if (size := sum(size for _, size in found)) >= LEAST_BYTES:
        text = (
            "fedcomp: exact tensors travel together, and no node changed %s bytes of them: %s; local=[...] names tensors that "
            "the nodes have already, and that need not travel"
        )
        log(INFO, text, f"{size:,}", listed([name for name, _ in found], MAX_NAMES))
