"""The state of a strategy as arrays and plain values: as declared, or, of a foreign strategy, what its attributes hold."""

from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, MutableSet
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
EMPTY: dict[str, type] = {"none": type(None), "list": list, "dict": dict, "tuple": tuple, "set": set}
"""The types of which an empty value is made again."""
COLLECTIONS: tuple[type, ...] = (MutableMapping, MutableSequence, MutableSet)
"""Of other types than those in `EMPTY`, such as defaultdict, the one that is there is emptied."""
HELD: Plain = {"group": "held"}
"""Stands for a setting that holds something, but no plain value."""


def settings_of(strategy: Strategy) -> Plain:
    """Return the attributes of foreign strategies, `strategy` and those it wraps, by path: plain values, and groups of others.

    Directly after construction they are its settings, which are no state.
    """
    return {
        f"{path}/{name}": _setting(to_python(value))
        for path, each in nested_strategies(strategy)
        if not isinstance(each, StatefulStrategy)
        for name, value in attributes(each).items()
    }


def state_of(strategy: Strategy, settings: Plain) -> tuple[Arrays, Plain]:
    """Return the arrays and the plain values that are the state of `strategy`; `settings` are `settings_of` it when new.

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
            elif (empty := _empty(value)) is not None:
                # A declared state that is missing starts as in a new strategy.
                if not isinstance(each, StatefulStrategy) and settings.get(place) != empty:
                    plain[place] = empty
            elif callable(value) or isinstance(value, Strategy):
                continue
            elif _holds_something(value) or settings.get(place) == HELD:
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
            elif group["group"] == "cleared":
                if hasattr(held := now.get(name), "clear"):
                    cast(Any, held).clear()
            elif group["group"] in EMPTY and not group["keys"]:
                saved[name] = EMPTY[group["group"]]()
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


def _setting(value: object) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    return _empty(value) or (HELD if _holds_something(value) else {})


def _empty(value: object) -> Plain | None:
    """Return the group of None, or of an empty collection; None for anything else."""
    kind = next((kind for kind, made in EMPTY.items() if type(value) is made), None)
    if kind is None and not isinstance(value, COLLECTIONS):
        return None
    return None if _holds_something(value) else {"group": kind or "cleared", "keys": []}


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
