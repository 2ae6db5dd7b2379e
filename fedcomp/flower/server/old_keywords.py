"""Keywords of `CompressedStrategy` that a value has replaced: they work for one more version."""

import warnings
from pathlib import Path
from typing import TypedDict

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.model.checkpoint import Checkpoint
from fedcomp.sync import Clipping


class OldKeywords(TypedDict, total=False):
    """The old keywords."""

    clip_norm: float
    clip_median: float
    checkpoint_every: int


def with_old_keywords(
    clipping: Clipping | None, checkpoint: Checkpoint | str | Path | None, old: OldKeywords
) -> tuple[Clipping, Checkpoint | None]:
    """Return the bound of updates and the checkpoint, where a path or `old` keywords may stand for them, with a warning.

    Raises `TypeError` for another keyword, and for an old one together with the value that replaces it; `ValueError` for
    values of other types.
    """
    if unknown := sorted(old.keys() - OldKeywords.__annotations__.keys()):
        raise TypeError(f"CompressedStrategy got an unexpected keyword argument {unknown[0]!r}")
    if "clip_norm" in old or "clip_median" in old:
        if clipping is not None:
            raise TypeError("CompressedStrategy got clipping, and clip_norm or clip_median, which it replaces")
        for name in ("clip_norm", "clip_median"):
            check_range(name, old.get(name, 0.0), least=0)
        clipping = Clipping(old.get("clip_norm", 0.0), old.get("clip_median", 0.0))
        _warn("clip_norm and clip_median are", f"clipping={clipping}")
    every = old.get("checkpoint_every", 1)
    check_int("checkpoint_every", every, 1, 2**63 - 1)
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint, every)
        _warn("checkpoint with a path is", f"checkpoint=Checkpoint({str(checkpoint.path)!r}, every={every})")
    elif "checkpoint_every" in old:
        if checkpoint is not None:
            raise TypeError("CompressedStrategy got a Checkpoint, and checkpoint_every, which it replaces")
        _warn("checkpoint_every is", f"checkpoint=Checkpoint(path, every={every})")
    if not isinstance(clipping, Clipping | None):
        raise ValueError(f"clipping is {clipping!r}; a Clipping is needed, such as Clipping(median=3)")
    if not isinstance(checkpoint, Checkpoint | None):
        raise ValueError(
            f"checkpoint is {checkpoint!r}; a Checkpoint is needed, such as Checkpoint('run.npz', every=10)"
        )
    return clipping or Clipping(), checkpoint


def _warn(old: str, new: str) -> None:
    text = f"CompressedStrategy: {old} deprecated; use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=4)
