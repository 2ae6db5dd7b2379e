"""The state of a strategy as a typed value, for checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

Tensors = dict[str, NDArray[Any]]
"""One array for each tensor, by the tensor's name."""
StateValue = bool | int | float | str | Tensors
StrategyState = dict[str, StateValue]
"""Values by the name that the checkpoint file gives them; names and meanings stay as they are across releases."""


class StatefulStrategy(ABC):
    """Base class of strategies whose state goes into checkpoints by name.

    Settings are no state: they are given again when a run is resumed.  A subclass with more state extends both methods.
    """

    @abstractmethod
    def state(self) -> StrategyState:
        """Return all that the next rounds depend on.  The arrays are the strategy's own: read them, do not write them."""

    @abstractmethod
    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned; what is missing starts as in a new strategy.

        Raises `CorruptError` for a value of the wrong kind.
        """


def tensors_in(state: Mapping[str, StateValue], name: str) -> Tensors:
    """Return the tensors under `name`, none if it is missing; raise `CorruptError` for anything else."""
    value = state.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(array, np.ndarray) for array in value.values()):
        raise CorruptError(f"the state {name!r} is a {type(value).__name__}; a mapping of arrays is needed")
    return value


def count_in(state: Mapping[str, StateValue], name: str) -> int:
    """Return the count under `name`, 0 if it is missing; raise `CorruptError` for anything else."""
    value = state.get(name, 0)
    if not isinstance(value, int) or value < 0:
        raise CorruptError(f"the state {name!r} is {value!r}; a whole number from 0 is needed")
    return value
