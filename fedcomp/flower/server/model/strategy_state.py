"""The state of a strategy as arrays and plain values: as declared, or, of a foreign strategy, what its attributes hold."""

from collections.abc import Iterable, Mapping
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedcomp.core import Arrays, from_json, to_json, to_python
from fedcomp.flower import records
from fedcomp.flower.compat import attributes, log, nested_strategies, to_record
from fedcomp.flower.strategies.state import StatefulStrategy

Plain = dict[str, Any]
"""Values that JSON can hold, by path; the path of an attribute is ``inner/<attribute>``, or ``inner/<wrapped>/<attribute>``."""
Scalars = dict[str, bool | int | float | str]


def scalars_of(strategy: Strategy) -> Scalars:
    """Return the plain values in the attributes of foreign strategies, `strategy` and those it wraps, by path.

    Directly after construction they are its settings, which are no state.
    """
    return {
        f"{path}/{name}": value
        for path, each in nested_strategies(strategy)
        if not isinstance(each, StatefulStrategy)
        for name, given in attributes(each).items()
        if isinstance(value := to_python(given), bool | int | float | str)
    }


def state_of(strategy: Strategy, settings: Scalars) -> tuple[Arrays, Plain]:
    """Return the arrays and the plain values that are the state of `strategy`; `settings` are `scalars_of` it when new.

    A value that cannot be saved is left out, with a warning in the log.
    """
    arrays: Arrays = {}
    plain: Plain = {}
    for path, each in nested_strategies(strategy):
        for name, given in _state(each).items():
            place, value = f"{path}/{name}", to_python(given)
            if _is_array(value):
                arrays[place] = cast(NDArray[Any], value)
            elif isinstance(value, bool | int | float | str):
                if settings.get(place, ...) != value:
                    plain[place] = value
            elif (parts := _parts(value)) is not None:
                group = "record" if isinstance(value, ArrayRecord) else "list" if isinstance(value, list) else "dict"
                plain[place] = {"group": group, "keys": list(parts)}
                arrays |= {f"{place}/{key}": array for key, array in parts.items()}
            elif not isinstance(each, StatefulStrategy) and (state := _state_dict(value)) is not None:
                plain[place] = {"group": "state", "state": state}
            elif _holds_something(value) and not callable(value) and not isinstance(value, Strategy):
                log(WARNING, "fedcomp: the checkpoint leaves out %s of %s", name, type(each).__name__)
    return arrays, plain


def restore(strategy: Strategy, arrays: Arrays, plain: Plain) -> None:
    """Put what `state_of` returned back into `strategy` and those it wraps, also into attributes that are made later."""
    for path, each in nested_strategies(strategy):
        declares, now = isinstance(each, StatefulStrategy), _state(each)
        names = list(now) if declares else sorted({*now, *_names_below(path, (*arrays, *plain))})
        saved: Plain = {}
        for name in names:
            place = f"{path}/{name}"
            found: Any = arrays.get(place, plain.get(place))
            if found is None:
                continue
            if not isinstance(found, dict):
                saved[name] = found
                continue
            group = cast(Plain, found)
            if group["group"] == "state":
                _load_state(place, group["state"], now.get(name))
            else:
                parts = {key: arrays[f"{place}/{key}"] for key in group["keys"]}
                saved[name] = _grouped(group["group"], parts, now.get(name))
        if isinstance(each, StatefulStrategy):
            each.restore(saved)
        else:
            attributes(each).update(saved)


def _names_below(path: str, places: Iterable[str]) -> set[str]:
    """Return the last parts of those `places` that are attributes of the strategy at `path` itself."""
    return {name for place in places if place.startswith(f"{path}/") and "/" not in (name := place[len(path) + 1 :])}


def _load_state(place: str, state: Any, value: Any) -> None:
    """Give `value`, which is at `place` now, its saved state."""
    if hasattr(value, "load_state_dict"):
        value.load_state_dict(state)
    else:
        log(WARNING, "fedcomp: the checkpoint holds the state of %s, and nothing is there to take it", place)


def _grouped(kind: str, parts: Arrays, value: Any) -> Any:
    """Return the record, list or dict of the arrays `parts`; `value` is in its place now."""
    if kind == "record":
        return to_record(parts)
    if kind == "list":
        return list(parts.values())
    if not isinstance(value, dict) or type(cast(object, value)) is dict:
        return parts
    held = cast(Any, value)  # such as a defaultdict
    held.clear()
    held.update(parts)
    return held


def _state(strategy: Strategy) -> Mapping[str, Any]:
    return strategy.state() if isinstance(strategy, StatefulStrategy) else attributes(strategy)


def _is_array(value: object) -> bool:
    """Return whether `value` is an array without Python objects: those would be pickled."""
    return isinstance(value, np.ndarray) and not cast(NDArray[Any], value).dtype.hasobject


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
    held = {key: np.asarray(array) for key, array in parts.items()}
    return None if any(array.dtype.hasobject for array in held.values()) else held


def _state_dict(value: object) -> Any:
    """Return the state of an object that names it, such as the accountant of a privacy budget, if JSON can hold it."""
    if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        return None
    try:
        state = _with_lists(cast(Any, value).state_dict())
        return state if from_json(to_json(state)) == state else None
    except (TypeError, ValueError):
        return None


def _with_lists(value: object) -> Any:
    """Return `value` with lists in place of tuples, as JSON holds them."""
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in cast(Mapping[Any, object], value).items()}
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in cast(Iterable[object], value)]
    return value


def _holds_something(value: object) -> bool:
    try:
        return bool(value)
    except (RuntimeError, ValueError):  # of several numbers, in torch, numpy and pandas
        return True
