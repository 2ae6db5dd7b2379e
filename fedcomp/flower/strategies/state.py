"""The state of a strategy as a typed value, for checkpoints."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

Tensors = dict[str, NDArray[Any]]
"""One array for each tensor, by the tensor's name."""
StateValue = bool | int | float | str | Tensors
StrategyState = dict[str, StateValue]
"""Values by the name that the checkpoint file gives them."""


class StatefulStrategy:
    """Base class of strategies whose state goes into checkpoints by name.

    `saved` names the attributes that are the state: counts, and tensors by name.  Names and meanings stay as they are across
    releases.  Settings are no state: they are given again when a run is resumed.  A subclass whose state is of another kind
    overrides both methods.  There is no default, because a state that is not declared would be lost without a word.
    """

    saved: ClassVar[tuple[str, ...]]

    def state(self) -> StrategyState:
        """Return all that the next rounds depend on.  The arrays are the strategy's own: read them, do not write them."""
        return {name: getattr(self, name) for name in self.saved}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned; what is missing starts as in a new strategy.

        Raises `CorruptError` for a value of the wrong kind.
        """
        for name in self.saved:
            check = _count if isinstance(getattr(self, name), int) else _tensors
            setattr(self, name, check(name, state.get(name)))


def _tensors(name: str, value: StateValue | None) -> Tensors:
    tensors = {} if value is None else value
    if not isinstance(tensors, dict) or not all(isinstance(array, np.ndarray) for array in tensors.values()):
        raise CorruptError(f"the state {name!r} is a {type(value).__name__}; a mapping of arrays is needed")
    return tensors


def _count(name: str, value: StateValue | None) -> int:
    count = 0 if value is None else value
    if not isinstance(count, int) or count < 0:
        raise CorruptError(f"the state {name!r} is {value!r}; a whole number from 0 is needed")
    return count
