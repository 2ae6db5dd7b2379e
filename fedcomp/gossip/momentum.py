"""Momentum from the change of a node's model by training and mixing: it has the direction of all nodes, not of one."""

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

    In the node's next round, an optimizer with heavy-ball momentum starts with the result as its buffer.

    Args:
        momentum: The result of the last call, by name; empty before the first call.
        before: The node's model at the beginning of the round; tensors of whole numbers are left out.
        after: The node's model after mixing.
        decay: The decay of the optimizer's momentum, 0 to 0.9999.
        learning_rate: The learning rate of the round, above 0.
        steps: The local steps of the round, at least 1.

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
