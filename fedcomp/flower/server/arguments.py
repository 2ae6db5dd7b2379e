"""Arguments of `CompressedStrategy` in the form that it works with: each check says what was found, and what is needed."""

from collections.abc import Iterable
from typing import cast

from flwr.app import ArrayRecord


def patterns_of(name: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return the name patterns in the argument `name`; a text is one pattern.

    Raises `ValueError` for anything but texts.
    """
    patterns = _texts(value)
    if patterns is None:
        raise ValueError(f"{name} is {value!r}; name patterns of tensors are needed, as {name}=['head.*']")
    return patterns


def tied_of(value: Iterable[Iterable[str]]) -> tuple[str | tuple[str, ...], ...]:
    """Return the groups of names in the argument `tied`; raise `ValueError` for anything but groups of texts."""
    groups = [each if isinstance(each, str) else _texts(each) for each in value] if _is_many(value) else [None]
    if None in groups:
        raise ValueError(
            f"tied is {value!r}; groups of names are needed, as tied=[('embedding.weight', 'output.weight')]"
        )
    return tuple(group for group in groups if group is not None)


def check_record(arrays: object) -> None:
    """Raise `ValueError` for initial arrays that are no ArrayRecord."""
    if not isinstance(arrays, ArrayRecord):
        raise ValueError(
            f"initial_arrays is of type {type(arrays).__name__}; an ArrayRecord is needed, as "
            "ArrayRecord(model.state_dict()), or to_record() of fedcomp.flower for arrays by name"
        )


def check_callable(name: str, value: object, what: str) -> None:
    """Raise `ValueError` for an argument `name` that cannot be called; `what` says what the callable does."""
    if not callable(value):
        raise ValueError(f"{name} is {value!r}; a callable that {what} is needed")


def _texts(value: object) -> tuple[str, ...] | None:
    """Return the texts in `value`, which may be one itself; None if it holds anything else."""
    if isinstance(value, str):
        return (value,)
    texts = tuple(cast(Iterable[object], value)) if _is_many(value) else (None,)
    return cast(tuple[str, ...], texts) if all(isinstance(each, str) for each in texts) else None


def _is_many(value: object) -> bool:
    return isinstance(value, Iterable)
