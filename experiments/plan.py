"""A study file, read and checked completely before anything runs: one question, and the grid of runs that answers it.

docs/experiments.md describes the format. A value of a [[method]] takes precedence over one of [grid], and that over one of
[run]; the file's own [run] takes precedence over those that it includes.
"""

import tomllib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from experiments.configuration import FIXED, STUDY_SETTINGS, Cell, defaults
from server.settings import Settings, SettingsError

KNOWN = tuple(sorted({*defaults(), *STUDY_SETTINGS} - FIXED))
"""What [run], [grid] and a [[method]] may set."""
RUN_ONLY = ("device", "weight-decay")
"""Settings that only [run] may hold: the table of results has no column that would tell such cells apart."""
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
"""What decides the settings of a cell, in order of precedence: its [[method]], [grid], the file's own [run], and others."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study file, and its cells in the order in which they run."""

    study: StudyFile
    cells: tuple[Cell, ...]
    layers: Mapping[str, Layers] = field(repr=False)
    """Name of a cell -> where its settings are written."""

    def error(self, cell: Cell, key: str, sentence: str) -> StudyError:
        """Return the error to raise for a setting of a cell."""
        return _layer(self.layers[cell.name], key).error(f"{key} is {cell.settings[key]!r}; {sentence}")

    def describe(self, cell: Cell) -> str:
        """Return the method and the settings in which cells differ, as in ``STC 1/100, seed 0``."""
        return ", ".join([cell.label, *(f"{key} {cell.settings[key]}" for key in self.study.grid)])


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
    grid = Layer(path, "grid.", study.grid)
    _check_keys(grid)
    for key, values in study.grid.items():
        if any(key in method.settings for method in methods.values()):
            raise grid.error(f"{key} is in [grid] and in a [[method]]; only one of them may set it")
        for number, value in enumerate(values):
            if value in values[:number]:
                raise grid.error(f"{key}[{number}] is {value!r} again; each value is needed once")
    found = list(_cells(runs, grid, methods))
    cells = tuple(cell for cell, _ in found)
    return StudyPlan(study, cells, {cell.name: layers for cell, layers in found})


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


def _check_keys(layer: Layer) -> None:
    known = ("label", *KNOWN) if layer.table.startswith("method") else KNOWN
    for key, value in layer.settings.items():
        if key in FIXED:
            raise layer.error(f"{key} is decided by the study itself; there are: {', '.join(KNOWN)}")
        if key == "sampling-decay":
            raise layer.error(f"{key} stays 0 in a study, because the clients in a round are counted as constant")
        if key not in known:
            raise layer.error(f"{key} is an unknown key; there are: {', '.join(known)}")
        if key in RUN_ONLY and layer.table != "run.":
            raise layer.error(f"{key} must be the same for all cells; it belongs in [run]")
        if isinstance(value, list) and layer.table != "grid.":
            raise layer.error(f"{key} is a list; a single value is needed, and lists belong in [grid]")


def _layer(layers: Layers, key: str) -> Layer:
    """Return where a setting is written; the method for one that is not."""
    return next((layer for layer in layers if key in layer.settings), layers[0])


def _cells(runs: list[Layer], grid: Layer, methods: Mapping[str, Layer]) -> Iterator[tuple[Cell, Layers]]:
    """Yield the checked cells with their settings' layers.

    The seed varies slowest, so that a study that is stopped halfway has all of its cells for some seeds.
    """
    axes = sorted(grid.settings, key=lambda key: key != "seed")
    base = {key: value for key, value in defaults().items() if key in KNOWN and key not in STUDY_SETTINGS}
    for values in product(*(grid.settings[key] for key in axes)):
        point = Layer(grid.file, grid.table, dict(zip(axes, values, strict=True)))
        for label, method in methods.items():
            layers = (method, point, *runs)
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
