"""Keywords of `CompressedStrategy` that a value has replaced: they work for one more version."""

import warnings
from pathlib import Path
from typing import TypedDict

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

    Raises `TypeError` for another keyword, and for an old one together with the value that replaces it.
    """
    if unknown := sorted(old.keys() - OldKeywords.__annotations__.keys()):
        raise TypeError(f"CompressedStrategy got an unexpected keyword argument {unknown[0]!r}")
    if "clip_norm" in old or "clip_median" in old:
        if clipping is not None:
            raise TypeError("CompressedStrategy got clipping, and clip_norm or clip_median, which it replaces")
        clipping = Clipping(old.get("clip_norm", 0.0), old.get("clip_median", 0.0))
        _warn("clip_norm and clip_median are", f"clipping={clipping}")
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint, old.get("checkpoint_every", 1))
        _warn("checkpoint with a path is", f"checkpoint=Checkpoint({str(checkpoint.path)!r}, every={checkpoint.every})")
    elif "checkpoint_every" in old:
        raise TypeError(
            "CompressedStrategy got checkpoint_every without a path; checkpoint=Checkpoint(path, every) is needed"
        )
    return clipping or Clipping(), checkpoint


def _warn(old: str, new: str) -> None:
    text = f"CompressedStrategy: {old} deprecated; use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=4)
