"""A study file, read and checked completely before anything runs: one question, and the grid of runs that answers it.

docs/experiments.md describes the format. A value of a [[method]] takes precedence over one of [grid], and that over one of
[run]; the file's own [run] takes precedence over those that it includes.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
class Place:
    """Where a setting is written: a file, and the table in it, as in ``method[1].``."""

    file: Path
    table: str

    def error(self, sentence: str) -> StudyError:
        """Return the error to raise for a sentence that begins with a key of the table."""
        return StudyError(f"{self.file}: {self.table}{' '.join(sentence.split())}")


Setting = tuple[Any, Place]


@dataclass(frozen=True, slots=True)
class Plan:
    """A study: texts for the report, and its cells in the order in which they run."""

    title: str
    question: str
    targets: tuple[float, ...]
    notes: tuple[str, ...]
    axes: tuple[str, ...]
    """The settings of the grid."""
    cells: tuple[Cell, ...]
    places: Mapping[str, Mapping[str, Place]] = field(repr=False)
    """Name of a cell -> setting -> where it is written; "label" stands for the method."""

    def error(self, cell: Cell, key: str, sentence: str) -> StudyError:
        """Return the error to raise for a setting of a cell."""
        places = self.places[cell.name]
        return places.get(key, places["label"]).error(f"{key} is {cell.settings[key]!r}; {sentence}")

    def describe(self, cell: Cell) -> str:
        """Return the method and the settings in which cells differ, as in ``STC 1/100, seed 0``."""
        return ", ".join([cell.label, *(f"{key} {cell.settings[key]}" for key in self.axes)])


def read_plan(path: Path) -> Plan:
    """Return the study in the TOML file `path`; raise `StudyError` if it cannot run."""
    study = _read(path, StudyFile)
    parts = [(path.parent / name, _read(path.parent / name, PartFile)) for name in study.include]
    run: dict[str, Setting] = {}
    methods: dict[str, dict[str, Setting]] = {}
    for file, part in [*parts, (path, study)]:
        run |= _settings(part.run, Place(file, "run."))
        for number, table in enumerate(part.method):
            place = Place(file, f"method[{number}].")
            label = table.get("label")
            if not isinstance(label, str) or not label.strip() or label in methods:
                raise place.error(f"label is {label!r}; a text that no other method has is needed")
            methods[label] = _settings(table, place, "label")
            _check_varied(table, place)
    if not methods:
        raise StudyError(f"{path}: no [[method]]; at least one is needed")
    grid = _grid(study.grid, Place(path, "grid."), methods)
    found = list(_cells(run, grid, methods, Place(path, "run.")))
    return Plan(
        title=study.title,
        question=study.question,
        targets=tuple(study.targets),
        notes=tuple(study.notes),
        axes=tuple(grid),
        cells=tuple(cell for cell, _ in found),
        places={cell.name: places for cell, places in found},
    )


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


def _settings(table: Mapping[str, Any], place: Place, *others: str) -> dict[str, Setting]:
    """Return the settings of a table with their place; `others` are further keys that it may have."""
    for key, value in table.items():
        if key in FIXED:
            raise place.error(f"{key} is decided by the study itself; there are: {', '.join(KNOWN)}")
        if key == "sampling-decay":
            raise place.error(f"{key} stays 0 in a study, because the clients in a round are counted as constant")
        if key not in (*others, *KNOWN):
            raise place.error(f"{key} is an unknown key; there are: {', '.join((*others, *KNOWN))}")
        if isinstance(value, list) and place.table != "grid.":
            raise place.error(f"{key} is a list; a single value is needed, and lists belong in [grid]")
    return {key: (value, place) for key, value in table.items()}


def _grid(
    table: Mapping[str, Sequence[Any]], place: Place, methods: Mapping[str, Mapping[str, Setting]]
) -> dict[str, Any]:
    """Return the values of each setting of the grid."""
    _settings(table, place)
    _check_varied(table, place)
    for key, values in table.items():
        if any(key in method for method in methods.values()):
            raise place.error(f"{key} is in [grid] and in a [[method]]; only one of them may set it")
        for number, value in enumerate(values):
            if value in values[:number]:
                raise place.error(f"{key}[{number}] is {value!r} again; each value is needed once")
    return {key: [(value, place) for value in values] for key, values in table.items()}


def _check_varied(table: Mapping[str, Any], place: Place) -> None:
    """Refuse settings that may not differ from cell to cell."""
    for key in RUN_ONLY:
        if key in table:
            raise place.error(f"{key} must be the same for all cells; it belongs in [run]")


def _cells(
    run: Mapping[str, Setting],
    grid: Mapping[str, Sequence[Setting]],
    methods: Mapping[str, Mapping[str, Setting]],
    missing: Place,
) -> Iterator[tuple[Cell, dict[str, Place]]]:
    """Yield the checked cells with the places of their settings; `missing` is the place of a setting that is missing.

    The seed varies slowest, so that a study that is stopped halfway has all of its cells for some seeds.
    """
    axes = sorted(grid, key=lambda key: key != "seed")
    base = {key: value for key, value in defaults().items() if key in KNOWN and key not in STUDY_SETTINGS}
    for values in product(*(grid[key] for key in axes)):
        for label, method in methods.items():
            settings = {**run, **dict(zip(axes, values, strict=True)), **method}
            places = {key: place for key, (_, place) in settings.items()}
            chosen = {key: value for key, (value, _) in settings.items() if key != "label"}
            _check_counts(chosen, places, missing)
            cell = Cell(label, {**base, **chosen})
            try:
                Settings.from_config(cell.config())
            except SettingsError as error:
                raise places.get(str(error).split()[0], places["label"]).error(str(error)) from None
            yield cell, places


def _check_counts(settings: Mapping[str, Any], places: Mapping[str, Place], missing: Place) -> None:
    """Check the settings that only a study has: the numbers of nodes and steps."""
    for key in COUNTS:
        value = settings.get(key)
        if key not in settings and key != "clients-per-round":
            raise missing.error(f"{key} is missing; [run], [grid] or the [[method]] must set it")
        if key in settings and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise places[key].error(f"{key} is {value!r}; a whole number, 1 or more, is needed")
    per_round, clients = settings.get("clients-per-round", 0), settings["clients"]
    if per_round and "fraction-train" in settings:
        raise places["clients-per-round"].error("clients-per-round and fraction-train are both set; only one may be")
    if per_round > clients:
        raise places["clients-per-round"].error(
            f"clients-per-round is {per_round}; at most all {clients} clients can train"
        )
