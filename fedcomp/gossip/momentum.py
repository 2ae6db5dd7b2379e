"""Momentum from what training and mixing did to a node's model together: it holds the direction of all nodes, not its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import check_int, check_range

MAX_DECAY = 0.9999
MAX_STEPS = 1_000_000_000
Arrays = Mapping[str, NDArray[Any]]


def quasi_global_momentum(
    momentum: Arrays, before: Arrays, after: Arrays, *, decay: float, learning_rate: float, steps: int = 1
) -> dict[str, NDArray[Any]]:
    """Return ``decay m + (1 - decay) (x_t - x_{t+1}) / (learning_rate steps)``.  Lin et al., ICML 2021, Algorithm 1.

    An optimizer with heavy-ball momentum begins the node's next round with the result as its buffer.

    Args:
        momentum: what the last call returned, by name; empty before the first.
        before: the node's model at the beginning of the round; tensors of whole numbers are left out.
        after: the node's model after mixing.
        decay: that of the optimizer's momentum, 0 to 0.9999.
        learning_rate: that of the round, above 0.
        steps: the local steps of the round, at least 1.

    Raises:
        ValueError: A setting is out of range, or a tensor is bfloat16.

    """
    check_range("decay", decay, least=0, most=MAX_DECAY)
    check_range("learning_rate", learning_rate, above=0)
    check_int("steps", steps, 1, MAX_STEPS)
    if words := [name for name, array in before.items() if array.dtype.kind == "V"]:
        raise ValueError(
            f"tensor {words[0]!r} is of words such as bfloat16's; numbers that numpy computes with are needed"
        )
    share = (1 - decay) / (learning_rate * steps)
    return {
        name: decay * momentum.get(name, np.zeros_like(array)) + share * (array - after[name])
        for name, array in before.items()
        if array.dtype.kind not in "iub"
    }
