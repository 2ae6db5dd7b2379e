"""Whether a reply is a model, or something else of the same shapes: a difference by mistake, gradients, importances."""

from typing import Any

import numpy as np

from fedcomp.backends import arithmetic
from fedcomp.core import BLOCK_ENTRIES, Vector, block_slices, is_numpy

MIN_ENTRIES = 64
"""In shorter vectors, the direction says nothing."""
MAX_DISTANCE_RATIO = 0.5
"""The largest distance of a difference to zero, in units of its distance to the model."""
MAX_SHARE = 0.25
"""The largest share of the model in a difference."""


def is_difference(change: Any, model: Vector) -> bool:
    """Return whether ``model + change`` looks like a difference to `model`, rather than like a model trained from it.

    `change` is a numpy vector or a torch tensor, float32 (n,); no entry of a tensor leaves its device.

    Both criteria must hold:

    * The reply is at most half as far from zero as from the model: `change` is about ``-model``.
    * On the entries that are not zero in the reply, its projection on the model has a coefficient below 1/4.  A trained model
      has a coefficient of about 1, and so has a pruned model on its nonzero entries.  A difference has about 0.

    Differences beyond half the norm of the model are not detected: this is the price of few false alarms.
    """
    if model.size < MIN_ENTRIES:
        return False
    reply_square = change_square = product = model_square = 0.0
    block = BLOCK_ENTRIES // 8 if is_numpy(change) else model.size  # in float64, several arrays of that length
    for part in block_slices(model.size, block):
        step, weights = change[part], arithmetic.as_like(model[part], change)
        if is_numpy(step):  # a device may lack float64, and sums a vector in parts
            step, weights = step.astype(np.float64), weights.astype(np.float64)
        reply = weights + step
        reply_square += float(reply @ reply)
        change_square += float(step @ step)
        product += float(reply @ weights)
        model_square += float((weights * (reply != 0)) @ weights)
    return 0 < reply_square < MAX_DISTANCE_RATIO**2 * change_square and product < MAX_SHARE * model_square


def is_fine_tuned(change: Vector, model: Vector) -> bool:
    """Return whether ``model + change``, both float32 (n,), looks like a model that was fine-tuned from `model`.

    Its projection on the model has a coefficient of at least 1/2, and it is at most twice as far from the model as zero is.
    Gradients, or importances such as a Fisher diagonal, have a coefficient of about 0, or are of another scale.
    """
    model_square = float(np.vdot(model, model))
    return float(np.vdot(change, model)) >= -model_square / 2 and float(np.vdot(change, change)) <= 4 * model_square
