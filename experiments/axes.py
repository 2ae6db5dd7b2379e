"""What a study sweeps: a setting with its values, and the numbers that stand inside a partition's text."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedcomp.core import parse_call
from fedcomp.data import SCHEMES
from fedcomp.data.skews import SKEWS

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
"""Column, or scheme or skew with its setting -> what it is called, and its unit or what it means."""

BARE = ("dataset", "model", "partition", "strategy")
"""Columns whose value says by itself what it is."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting that takes several values: its column, its name, its values in order, smallest first if numbers."""

    column: str
    name: str
    note: str
    values: tuple[Value, ...]
    within: str = ""
    """Which setting of the partition the values are, as in "stc.classes"; empty where they are the column's own."""

    @property
    def label(self) -> str:
        """The name with its unit, for a figure."""
        return f"{self.name} ({self.note})" if self.note else self.name

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return all(isinstance(value, int | float) for value in self.values)

    def read(self, value: Value) -> Value:
        """Return where on this axis a row lies whose column holds `value`."""
        return _settings(str(value))[self.within] if self.within else value

    def show(self, value: Value) -> str:
        """Return a value in words, as "classes per client: 2"."""
        shown = self.format(value)
        return shown if self.column in BARE and not self.within else f"{self.name}: {shown}"

    def format(self, value: Value) -> str:
        """Return a value, short, as a tick or the head of a column."""
        if self.column == "participation" and isinstance(value, int | float):
            return f"{100 * value:g} %"
        return f"{value:g}" if isinstance(value, float) else str(value)


def column_axis(column: str, values: Sequence[Value]) -> Axis:
    """Return the axis of a column's own values; numbers are sorted, texts stay in their order."""
    name, note = NAMES.get(column, (column.replace("_", " "), ""))
    numbers = all(isinstance(value, int | float) for value in values)
    return Axis(column, name, note, tuple(sorted(values) if numbers else values))


def partition_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes along which partitions differ: the numbers that vary where all else is one, or else their texts."""
    whole = (column_axis("partition", texts),) if len(texts) > 1 else ()
    try:
        settings = [_settings(text) for text in texts]
    except ValueError:  # a scheme of another release: its text still tells it apart
        return whole
    if len({tuple(one) for one in settings}) > 1:
        return whole
    axes = []
    for key in settings[0] if settings else ():
        values = list(dict.fromkeys(one[key] for one in settings))
        if len(values) > 1:
            name, note = NAMES.get(key, (key.replace("_", " ").replace(".", ": "), ""))
            axes.append(Axis("partition", name, note, column_axis(key, values).values, within=key))
    return tuple(axes) if axes and all(axis.numeric for axis in axes) else whole


def terms(text: str) -> Iterator[str]:
    """Yield the terms of a partition, its scheme and its feature skews.  Raises `ValueError` for no such text."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} is no partition; a text such as classes(2) is needed") from None
    skews: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        skews.append(ast.unparse(node.right))
        node = node.left
    yield ast.unparse(node)
    yield from reversed(skews)


def _settings(text: str) -> dict[str, Value]:
    """Return "scheme.setting" -> value, defaults in them.  Raises `ValueError` for a scheme or skew not known."""
    found: dict[str, Value] = {}
    for term in terms(text):
        name, args, kwargs = parse_call(term)
        maker = SCHEMES.get(name) or SKEWS.get(name)
        if maker is None:
            raise ValueError(f"unknown partition scheme {name!r}")
        try:
            bound = inspect.signature(maker).bind(*args, **kwargs)
        except TypeError as error:
            raise ValueError(f"{text}: {error}") from None
        bound.apply_defaults()
        found[f"{name}."] = ""  # a scheme without settings is told apart as well
        for key, value in bound.arguments.items():
            found[f"{name}.{key}"] = value if isinstance(value, int | float) else str(value)
    return found
