"""The bound of Flower's differential privacy with clipping on the client."""

import math

from flwr.app import ConfigRecord, RecordDict

from fedcomp.flower.compat import KEY_CLIPPING_NORM


def clipping_norm(content: RecordDict) -> float | None:
    """Return the clipping norm that Flower's DP strategies put into the config of a training message; None without one.

    A value that those strategies refuse, such as 0 or a text, is a setting of the app's own.
    """
    for record in content.values():
        norm = record.get(KEY_CLIPPING_NORM) if isinstance(record, ConfigRecord) else None
        if isinstance(norm, int | float) and not isinstance(norm, bool) and 0 < norm < math.inf:
            return float(norm)
    return None
