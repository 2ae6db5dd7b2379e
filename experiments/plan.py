"""A study file, read and checked completely before anything runs: one question, and the grid of runs that answers it.

docs/how-to/experiments.md describes the format. A value of a [[method]] takes precedence over one of [tune] or [grid], and that
over one of [run]; the file's own [run] takes precedence over those that it includes.
"""

import math
import tomllib
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from experiments.axes import partition_settings
from experiments.configuration import FIXED, STUDY_SETTINGS, Cell, defaults
from server.settings import Settings, SettingsError

KNOWN = tuple(sorted({*defaults(), *STUDY_SETTINGS} - FIXED))
"""What [run], [grid] and a [[method]] may set."""
RUN_ONLY = ("device", "weight-decay")
"""Settings that only [run] may hold: the table of results has no column that would tell such cells apart."""
NO_COLUMN = (*RUN_ONLY, "clip-median", "clip-norm", "evaluate-every", "iterations")
"""Settings without such a column; methods that differ in them have labels of their own, but no cells of a grid."""
LAST = 5
"""The evaluations at the end of a trial whose mean accuracy decides about [tune]."""
COUNTS = ("clients", "clients-per-round", "iterations", "evaluate-every", "local-steps")

Text = Annotated[StrictStr, Field(pattern=r"\S")]


class StudyError(ValueError):
    """A study that cannot run as it is written; the text is one sentence that names the file and the key."""


class PartFile(BaseModel):
    """A file that studies include: settings and methods."""

    model_config = ConfigDict(extra="forbid")
    run: dict[str, Any] = {}
    method: list[dict[str, Any]] = []


class StudyFile(PartFile):
    """A study file."""

    title: Text
    question: StrictStr = ""
    targets: list[Annotated[float, Field(gt=0, le=1, strict=True)]] = []
    notes: list[StrictStr] = []
    include: list[StrictStr] = []
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    tune: dict[str, Annotated[list[Any], Field(min_length=2)]] = {}


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings in one table of a file; `table` is its name as a prefix of keys, as in ``method[1].``."""

    file: Path
    table: str
    settings: Mapping[str, Any]

    def error(self, sentence: str) -> StudyError:
        """Return the error to raise for a sentence that begins with a key of the table."""
        return StudyError(f"{self.file}: {self.table}{' '.join(sentence.split())}")


Layers = tuple[Layer, ...]
"""What decides the settings of a cell, in order of precedence: its [[method]], [tune], [grid], the file's own [run], and
others."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study file, and its cells in the order in which they run: with [tune], those of every value."""

    study: StudyFile
    cells: tuple[Cell, ...]
    layers: Mapping[str, Layers] = field(repr=False)
    """Name of a cell -> where its settings are written."""

    @property
    def trials(self) -> tuple[Cell, ...]:
        """The cells that choose the values of [tune]: those of the first seed; none without [tune]."""
        seeds = self.study.grid.get("seed", [])
        return (
            tuple(cell for cell in self.cells if not seeds or cell.settings["seed"] == seeds[0])
            if self.study.tune
            else ()
        )

    @property
    def num_runs(self) -> int:
        """The number of cells that `tuned` returns if no trial fails."""
        return len(self.cells) // math.prod(map(len, self.study.tune.values()))

    def tuned(self, table: pd.DataFrame) -> tuple[Cell, ...]:
        """Return the cells with the best values of [tune], for each method and point of the grid; without [tune], all cells.

        `table` has the results of trials.  The best one has the highest mean accuracy of its last five evaluations; a tie goes
        to the value that the file names first.  A method without a trial has no cells.
        """
        if not self.study.tune:
            return self.cells
        scores = (
            table.groupby("cell")["accuracy"].agg(lambda accuracy: accuracy.tail(LAST).mean(skipna=False)).fillna(-1.0)
        )
        best: dict[tuple[object, ...], Cell] = {}
        for cell in self.trials:
            place = self._place(cell)
            if cell.name in scores and (place not in best or scores[cell.name] > scores[best[place].name]):
                best[place] = cell
        return tuple(
            cell
            for cell in self.cells
            if (chosen := best.get(self._place(cell)))
            and all(cell.settings[key] == chosen.settings[key] for key in self.study.tune)
        )

    def untried(self, cells: Sequence[Cell]) -> list[str]:
        """Return each method, with the point of the grid, that none of `cells`, which `tuned` returned, belongs to."""
        axes = [key for key in self.study.grid if key != "seed"]
        there = set(map(self._place, cells))
        return [
            ", ".join([str(label), *(f"{key} {value}" for key, value in zip(axes, values, strict=True))])
            for label, *values in dict.fromkeys(map(self._place, self.trials))
            if (label, *values) not in there
        ]

    def _place(self, cell: Cell) -> tuple[object, ...]:
        """Return what the cells have in common that one choice is for: the method, and the point of the grid but the seed."""
        return (cell.label, *(cell.settings[key] for key in self.study.grid if key != "seed"))

    def error(self, cell: Cell, key: str, sentence: str) -> StudyError:
        """Return the error to raise for a setting of a cell."""
        return _layer(self.layers[cell.name], key).error(f"{key} is {cell.settings[key]!r}; {sentence}")

    def describe(self, cell: Cell) -> str:
        """Return the method and the settings in which cells differ, as in ``STC 1/100, seed 0``."""
        return ", ".join([cell.label, *(f"{key} {cell.settings[key]}" for key in (*self.study.grid, *self.study.tune))])


def read_plan(path: Path) -> StudyPlan:
    """Return the study in the TOML file `path`; raise `StudyError` if it cannot run."""
    study = _read(path, StudyFile)
    runs: list[Layer] = []
    methods: dict[str, Layer] = {}
    for file, part in [
        *((path.parent / name, _read(path.parent / name, PartFile)) for name in study.include),
        (path, study),
    ]:
        runs.insert(0, Layer(file, "run.", part.run))
        _check_keys(runs[0])
        for number, table in enumerate(part.method):
            method = Layer(file, f"method[{number}].", table)
            label = table.get("label")
            if not isinstance(label, str) or not label.strip() or label in methods:
                raise method.error(f"label is {label!r}; a text that no other method has is needed")
            _check_keys(method)
            methods[label] = method
    if not methods:
        raise StudyError(f"{path}: no [[method]]; at least one is needed")
    grid, tune = Layer(path, "grid.", study.grid), Layer(path, "tune.", study.tune)
    for layer in (grid, tune):
        _check_values(layer, methods)
    if both := study.grid.keys() & study.tune.keys():
        raise tune.error(f"{min(both)} is in [grid] and in [tune]; only one of them may set it")
    if "seed" in study.tune:
        raise tune.error("seed is no setting to tune; it belongs in [grid]")
    found = list(_cells(runs, grid, tune, methods))
    cells = tuple(cell for cell, _ in found)
    plan = StudyPlan(study, cells, {cell.name: layers for cell, layers in found})
    _check_distinct(plan)
    return plan


File = TypeVar("File", bound=PartFile)


def _read(path: Path, kind: type[File]) -> File:
    """Return the content of a TOML file; raise `StudyError`, which names the key, for one of another form."""
    try:
        return kind.model_validate(tomllib.loads(path.read_bytes().decode()))
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}; a study file is needed") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])[1:]
        if first["type"] == "extra_forbidden":
            sentence = f"{key} is an unknown key; there are: {', '.join(kind.model_fields)}"
        elif first["type"] == "missing":
            sentence = f"{key} is missing; a text is needed"
        else:
            sentence = f"{key} is {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}"
        raise StudyError(f"{path}: {sentence}") from None
    except ValueError as error:  # of the decoder, or of the TOML parser, which names the line
        raise StudyError(f"{path}: {error}; a TOML file in UTF-8 is needed") from None


def _check_values(layer: Layer, methods: Mapping[str, Layer]) -> None:
    """Check a table of lists: [grid] or [tune]."""
    _check_keys(layer)
    name = layer.table.rstrip(".")
    for key, values in layer.settings.items():
        if any(key in method.settings for method in methods.values()):
            raise layer.error(f"{key} is in [{name}] and in a [[method]]; only one of them may set it")
        for number, value in enumerate(values):
            if value in values[:number]:
                raise layer.error(f"{key}[{number}] is {value!r} again; each value is needed once")


def _check_keys(layer: Layer) -> None:
    known = ("label", *KNOWN) if layer.table.startswith("method") else KNOWN
    for key, value in layer.settings.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isprintable():
                raise layer.error(f"{key} is {text!r}; a text without control characters is needed")
        if key in ("split", "split-layer"):
            raise layer.error(f"{key} is no setting of a study: all of its cells train without split learning")
        if key in FIXED:
            raise layer.error(f"{key} is decided by the study itself; there are: {', '.join(KNOWN)}")
        if key == "sampling-decay":
            raise layer.error(f"{key} stays 0 in a study, because the clients in a round are counted as constant")
        if key not in known:
            raise layer.error(f"{key} is an unknown key; there are: {', '.join(known)}")
        if key in RUN_ONLY and layer.table != "run.":
            raise layer.error(f"{key} must be the same for all cells; it belongs in [run]")
        if key in NO_COLUMN and layer.table == "grid.":
            raise layer.error(
                f"{key} is no axis of the table of results; a [[method]] for each of its values is needed"
            )
        if isinstance(value, list) and layer.table not in ("grid.", "tune."):
            raise layer.error(f"{key} is a list; a single value is needed, and lists belong in [grid] or [tune]")


def _check_distinct(plan: StudyPlan) -> None:
    """Raise `StudyError` for a partition or a number of clients that is there twice, in other words.

    A report would take the runs of both for one setting.
    """
    first: dict[tuple[object, ...], Cell] = {}
    for cell in plan.cells:
        partition = partition_settings(str(cell.settings["partition"]))
        meant = {**cell.settings, "fraction-train": 0, "clients-per-round": cell.clients_per_round, "partition": ""}
        other = first.setdefault((cell.label, *sorted(meant.items()), *partition.items()), cell)
        if other is not cell:
            key = next(key for key, value in cell.settings.items() if value != other.settings[key])
            raise plan.error(cell, key, f"{other.settings[key]!r} means the same runs, and each value is needed once")


def _layer(layers: Layers, key: str) -> Layer:
    """Return where a setting is written; the method for one that is not."""
    return next((layer for layer in layers if key in layer.settings), layers[0])


def _cells(runs: list[Layer], grid: Layer, tune: Layer, methods: Mapping[str, Layer]) -> Iterator[tuple[Cell, Layers]]:
    """Yield the checked cells with their settings' layers.

    The seed varies slowest, so that a study that is stopped halfway has all of its cells for some seeds.
    """
    axes = sorted(grid.settings, key=lambda key: key != "seed")
    base = {key: value for key, value in defaults().items() if key in KNOWN and key not in STUDY_SETTINGS}
    points = product(*(grid.settings[key] for key in axes))
    for values, chosen_values in product(points, product(*tune.settings.values())):
        point = Layer(grid.file, grid.table, dict(zip(axes, values, strict=True)))
        trial = Layer(tune.file, tune.table, dict(zip(tune.settings, chosen_values, strict=True)))
        for label, method in methods.items():
            layers = (method, trial, point, *runs)
            chosen = dict(ChainMap(*(dict(layer.settings) for layer in layers)))
            del chosen["label"]
            _check_counts(chosen, layers, runs[0])
            cell = Cell(label, {**base, **chosen})
            try:
                Settings.from_config(cell.config())
            except SettingsError as error:
                raise _layer(layers, str(error).split()[0]).error(str(error)) from None
            yield cell, layers


def _check_counts(settings: Mapping[str, Any], layers: Layers, run: Layer) -> None:
    for key in COUNTS:
        value = settings.get(key)
        if key not in settings and key != "clients-per-round":
            raise run.error(f"{key} is missing; [run], [grid] or the [[method]] must set it")
        if key in settings and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise _layer(layers, key).error(f"{key} is {value!r}; a whole number, 1 or more, is needed")
    per_round, clients = settings.get("clients-per-round", 0), settings["clients"]
    if per_round and "fraction-train" in settings:
        sentence = "clients-per-round and fraction-train are both set; only one may be"
        raise _layer(layers, "clients-per-round").error(sentence)
    if per_round > clients:
        sentence = f"clients-per-round is {per_round}; at most all {clients} clients can train"
        raise _layer(layers, "clients-per-round").error(sentence)
