"""The state of a strategy as arrays and plain values: as declared, or, of a foreign strategy, what its attributes hold."""

from collections.abc import Mapping
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedcomp.core import Arrays
from fedcomp.flower import records
from fedcomp.flower._compat import log
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.strategies.state import StatefulStrategy

ROOT = "inner"
"""The path of the strategy itself; those that it wraps have the paths ``inner/<attribute>``."""
Plain = dict[str, Any]
"""Values that JSON can hold, by path."""
Scalars = dict[str, bool | int | float | str]


def scalars_of(strategy: Strategy, path: str = ROOT) -> Scalars:
    """Return the plain values in the attributes of a strategy and those it wraps, by path.

    Directly after construction they are its settings, which are no state.
    """
    found: Scalars = {}
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            found |= scalars_of(value, f"{path}/{name}")
        elif isinstance(value, bool | int | float | str) and not isinstance(strategy, StatefulStrategy):
            found[f"{path}/{name}"] = value
    return found


def state_of(strategy: Strategy, settings: Scalars) -> tuple[Arrays, Plain]:
    """Return the arrays and the plain values that are the state of `strategy`; `settings` are `scalars_of` it when new.

    A value that cannot be saved is left out, with a warning in the log.
    """
    arrays: Arrays = {}
    plain: Plain = {}
    _collect(strategy, ROOT, arrays, plain)
    changed = {path: value for path, value in scalars_of(strategy).items() if settings.get(path, ...) != value}
    return arrays, plain | changed


def restore(strategy: Strategy, arrays: Arrays, plain: Plain, path: str = ROOT) -> None:
    """Put what `state_of` returned back into `strategy` and those it wraps."""
    for name, wrapped in _wrapped(strategy).items():
        restore(wrapped, arrays, plain, f"{path}/{name}")
    saved: Plain = {}
    for name in strategy.state() if isinstance(strategy, StatefulStrategy) else vars(strategy):
        place = f"{path}/{name}"
        if place in arrays:
            saved[name] = arrays[place]
        elif isinstance(plain.get(place), dict):
            parts = {key: arrays[f"{place}/{key}"] for key in plain[place]["keys"]}
            saved[name] = _regroup(plain[place]["group"], parts)
        elif place in plain:
            saved[name] = plain[place]
    if isinstance(strategy, StatefulStrategy):
        strategy.restore(saved)
    else:
        vars(strategy).update(saved)


def _collect(strategy: Strategy, path: str, arrays: Arrays, plain: Plain) -> None:
    state: Mapping[str, Any] = vars(strategy)
    if isinstance(strategy, StatefulStrategy):
        state = strategy.state()
        plain |= {f"{path}/{name}": value for name, value in state.items() if not isinstance(value, dict)}
    for name, value in (_wrapped(strategy) | dict(state)).items():
        place = f"{path}/{name}"
        if isinstance(value, Strategy):
            _collect(value, place, arrays, plain)
        elif isinstance(value, np.ndarray):
            arrays[place] = value
        elif (parts := _parts(value)) is not None:
            plain[place] = {"group": _group(value), "keys": list(parts)}
            arrays |= {f"{place}/{key}": array for key, array in parts.items()}
        elif value and not callable(value) and not isinstance(value, bool | int | float | str):
            log(WARNING, "fedcomp: the checkpoint leaves out %s of %s", name, type(strategy).__name__)


def _wrapped(strategy: Strategy) -> dict[str, Strategy]:
    """Return the strategies that `strategy` wraps, by attribute."""
    return {name: value for name, value in vars(strategy).items() if isinstance(value, Strategy)}


def _parts(value: object) -> dict[Any, NDArray[Any]] | None:
    """Return the arrays of a record, a mapping or a list of arrays, by key; None for anything else."""
    if isinstance(value, ArrayRecord):
        return dict(records.to_arrays(value))
    if not isinstance(value, list | dict):
        return None
    group = cast(Any, value)
    parts: dict[Any, Any] = dict(enumerate(group)) if isinstance(value, list) else group  # pyright: ignore[reportUnknownArgumentType]
    if not parts or not all(isinstance(key, str | int) for key in parts):
        return None
    # Arithmetic turns an array of shape () into a numpy scalar.
    if not all(isinstance(array, np.ndarray | np.generic) for array in parts.values()):
        return None
    return {key: np.asarray(array) for key, array in parts.items()}


def _group(value: object) -> str:
    return "record" if isinstance(value, ArrayRecord) else "list" if isinstance(value, list) else "dict"


def _regroup(group: str, parts: dict[Any, NDArray[Any]]) -> object:
    if group == "record":
        return to_record(parts)
    return list(parts.values()) if group == "list" else parts
