"""The error that compressed updates leave in their mean."""

from collections.abc import Sequence

import numpy as np

from fedcomp.core import Vector
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply


def error_of_mean(replies: Sequence[ValidatedReply]) -> float:
    """Return the expected squared error of the mean of the updates; 0 for methods that spread no error over all entries."""
    noise = [reply.update.expected_noise for reply in replies if reply.update is not None]
    errors = [each[1] for each in noise if each is not None]
    return sum(errors) / len(errors) ** 2 if errors else 0.0


def error_of_entry(replies: Sequence[ValidatedReply], change: Vector) -> float:
    """Return the same for one entry of the mean, `change`, float32 (n,); entries that are 0 have no error."""
    return error_of_mean(replies) / max(1, int(np.count_nonzero(change)))
