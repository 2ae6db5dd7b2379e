"""What a study sweeps: a setting with its values, or a number inside the text of a partition."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedcomp.core import parse_call
from fedcomp.data import SCHEMES, SKEWS, split_partition

Value: TypeAlias = str | int | float

NAMES = {
    "batch_size": ("batch size", "samples"),
    "local_steps": ("local steps a round", ""),
    "participation": ("participation", "of the clients, a round"),
    "learning_rate": ("learning rate", ""),
    "stc.classes": ("classes per client", ""),
    "classes.count": ("classes per client", ""),
    "stc.gamma": ("balancedness gamma", "1: clients of one size"),
    "dirichlet.alpha": ("Dirichlet alpha", "small: few classes each"),
    "inner_dirichlet.alpha": ("Dirichlet alpha", "small: few classes each"),
    "quantity.alpha": ("Dirichlet alpha of the sizes", "small: uneven"),
    "shards.shards_per_client": ("shards per client", ""),
    "rotation.degrees": ("rotation", "degrees, either way"),
    "noise.sigma": ("noise sigma", "in units of the card's std"),
}
"""Column, or scheme or skew with its setting -> its name, and its unit or meaning."""
SELF_EXPLANATORY = ("dataset", "model", "partition", "strategy")
"""Columns whose value needs no name in front of it."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting with several values: its column, its name, and its values in order, numbers in ascending order."""

    column: str
    name: str
    note: str
    values: tuple[Value, ...]
    setting: str = ""
    """The setting of the partition that the values belong to, as in "stc.classes"; empty for the column's own values."""

    @property
    def label(self) -> str:
        """The name with its unit, for a figure."""
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, int | float) for value in self.values)

    def read(self, value: Value) -> Value:
        """Return the value on this axis of a row whose column holds `value`."""
        return partition_settings(str(value))[self.setting] if self.setting else value

    def show(self, value: Value) -> str:
        """Return a value with its name, as in "classes per client: 2"."""
        text = self.format(value)
        return text if self.column in SELF_EXPLANATORY and not self.setting else f"{self.name}: {text}"

    def format(self, value: Value) -> str:
        """Return a value as a short text, for a tick or the head of a column."""
        if self.column == "participation" and isinstance(value, int | float):
            return f"{100 * value:g} %"
        return f"{value:g}" if isinstance(value, float) else str(value)


def column_axis(column: str, values: Sequence[Value]) -> Axis:
    """Return the axis of a column's own values; numbers are sorted, texts keep their order."""
    name, note = NAMES.get(column, (column.replace("_", " "), ""))
    numbers = all(isinstance(value, int | float) for value in values)
    return Axis(column, name, note, tuple(sorted(values) if numbers else values))


def partition_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes along which partitions differ: the numbers that vary if nothing else does, or else the texts."""
    by_text = (column_axis("partition", texts),) if len(texts) > 1 else ()
    try:
        settings = [partition_settings(text) for text in texts]
    except ValueError:  # a scheme of another release: its text still distinguishes it
        return by_text
    if len({tuple(one) for one in settings}) > 1:
        return by_text
    axes = []
    for key in settings[0]:
        values = list(dict.fromkeys(one[key] for one in settings))
        if len(values) > 1:
            name, note = NAMES.get(key, (key.replace("_", " ").replace(".", ": "), ""))
            axes.append(Axis("partition", name, note, column_axis(key, values).values, setting=key))
    return tuple(axes) if axes and all(axis.numeric for axis in axes) else by_text


def partition_settings(text: str) -> dict[str, Value]:
    """Return "scheme.setting" -> value, defaults included. Raises `ValueError` for an unknown scheme or skew."""
    found: dict[str, Value] = {}
    for term in split_partition(text):
        name, args, kwargs = parse_call(term)
        maker = SCHEMES.get(name) or SKEWS.get(name)
        if maker is None:
            raise ValueError(f"unknown partition scheme {name!r}")
        try:
            bound = inspect.signature(maker).bind(*args, **kwargs)
        except TypeError as error:
            raise ValueError(f"{text}: {error}") from None
        bound.apply_defaults()
        found[f"{name}."] = ""  # distinguishes a scheme without settings too
        for key, value in bound.arguments.items():
            found[f"{name}.{key}"] = value if isinstance(value, int | float) else str(value)
    return found
