"""A study file, read and checked whole before anything runs: one question, and the grid of runs that answers it.

    title = "Classes per client"
    question = "How does ... ?"
    targets = [0.85]                 # accuracies, for bytes and time until they are reached; may be left out

    [run]                            # settings of every cell, by their names in a run config
    dataset = "mnist"
    model = "logistic"
    clients = 100
    fraction-train = 0.1             # or clients-per-round = 10
    iterations = 5000                # steps of a node that takes part in every round; rounds = iterations / local-steps
    evaluate-every = 100             # iterations

    [grid]                           # lists: every combination is a cell, with each method
    partition = ["stc(classes=1)", "stc(classes=2)"]
    seed = [0, 1, 2]

    [[method]]
    label = "STC 1/100"
    uplink = "stc(density=0.01)"
    downlink = "stc(density=0.01)"

``include = ["methods.toml"]`` takes the [run] and the [[method]] tables of other files beside it; the file's own [run] goes
before theirs.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from benchmarks.study.source import Section, Source, StudyError
from server.settings import Settings, SettingsError

ROOT = Path(__file__).resolve().parents[2]
OWN = ("clients", "clients-per-round", "iterations", "evaluate-every")
"""Settings of a study that are no settings of the app, or mean something else there."""
SET_HERE = frozenset(
    {
        "num-rounds", "evaluate-every", "runs-dir", "run-name", "checkpoint-every", "resume", "min-nodes", "data-dir",
        "node-timeout", "round-timeout", "fraction-evaluate", "num-threads",
    }
)  # fmt: skip
"""Settings of the app that a study sets itself."""
TOP = ("title", "question", "targets", "notes", "include", "run", "grid", "method")

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a method's `label`, and all settings, by their names in the study file."""

    label: str
    settings: Mapping[str, Value] = field(hash=False)

    @property
    def name(self) -> str:
        """Twelve hexadecimal digits that no other settings have."""
        text = json.dumps([self.label, dict(sorted(self.settings.items()))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def clients(self) -> int:
        """The number of nodes."""
        return int(self.settings["clients"])

    @property
    def clients_per_round(self) -> int:
        """The number of nodes that train in a round."""
        if "clients-per-round" in self.settings:
            return int(self.settings["clients-per-round"])
        return max(1, int(self.clients * float(self.settings["fraction-train"])))  # as Flower rounds

    @property
    def local_steps(self) -> int:
        """Steps of SGD in a round."""
        return int(self.settings["local-steps"])

    @property
    def rounds(self) -> int:
        """Rounds for the iterations asked for, rounded up."""
        return math.ceil(int(self.settings["iterations"]) / self.local_steps)

    @property
    def work(self) -> int:
        """A number in proportion to the time that the run takes, roughly: a message costs about as much as three steps."""
        return self.rounds * self.clients_per_round * (self.local_steps + 3)

    def config(self) -> dict[str, Value]:
        """Return the run config for the Flower app, folders apart."""
        config = {key: value for key, value in self.settings.items() if key not in OWN}
        if "clients-per-round" in self.settings:
            # Flower rounds down; half a client more keeps clear of the rounding of floats.
            config["fraction-train"] = min(1.0, (self.clients_per_round + 0.5) / self.clients)
        evaluate_every = int(self.settings["evaluate-every"])
        return defaults() | config | {
            "num-rounds": self.rounds,
            "evaluate-every": max(1, round(evaluate_every / self.local_steps)),
            "fraction-evaluate": 0.0,
            "min-nodes": min(2, self.clients),
            "num-threads": 1,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """A study: words for the report, and its cells, in the order in which they run."""

    title: str
    question: str
    targets: tuple[float, ...]
    notes: tuple[str, ...]
    cells: tuple[Cell, ...]
    origins: Mapping[str, "Origin"] = field(repr=False)
    """Cell -> where its settings come from."""


Origin = Mapping[str, Section]
Placed = dict[str, tuple[object, Section]]
"""Setting -> its value, and where it stands."""


def defaults() -> dict[str, Value]:
    """Return the run config that the app has by default."""
    table: dict[str, Value] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return table


def read_plan(path: Path) -> Plan:
    """Return the study in the TOML file `path`; raise `StudyError` for one that cannot be, before anything runs."""
    table, source = _read(path)
    top, grid_section = Section(source), Section(source, "grid")
    included = [_read(path.parent / name) for name in _texts(top, table, "include")]
    for other, origin in included:
        _check_keys(Section(origin), other, ("run", "method"))
    grid = _table(top, table, "grid")
    _check_keys(grid_section, grid, _known(), " in [grid]")
    for key, value in grid.items():
        if not isinstance(value, list) or not value:
            raise grid_section.error(key, f"{key} is {value!r}; a list of values is needed")
    run: Placed = {}
    methods: dict[str, Placed] = {}
    for part, origin in [*included, (table, source)]:
        run |= _settings(Section(origin, "run"), _table(Section(origin), part, "run"), _known(), " in [run]")
        for label, method in _methods(origin, part):
            if label in methods:
                place = method["label"][1]
                raise place.error("label", f"label {label!r} is there twice; each method needs its own")
            methods[label] = method
    if not methods:
        raise StudyError(f"{path}: no [[method]]; at least one is needed")
    for method in methods.values():
        for key in grid.keys() & method.keys():
            raise grid_section.error(key, f"{key} is in [grid] and in a [[method]]; one of them must decide")
    found = dict(_cells(path, run, {key: (value, grid_section) for key, value in grid.items()}, methods))
    return Plan(
        title=_text(top, table, "title"),
        question=_text(top, table, "question", ""),
        targets=_targets(top, table),
        notes=_texts(top, table, "notes"),
        cells=tuple(found),
        origins={cell.name: origin for cell, origin in found.items()},
    )


def _read(path: Path) -> tuple[dict[str, object], Source]:
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}; a study file is needed") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors too
        raise StudyError(f"{path}: {error}; a TOML file is needed") from None
    source = Source(path, text)
    _check_keys(Section(source), table, TOP)
    return table, source


def _cells(path: Path, run: Placed, grid: Placed, methods: Mapping[str, Placed]) -> Iterator[tuple[Cell, Origin]]:
    """Yield the cells, checked, and where their settings come from.

    The seed turns slowest: a study that is stopped halfway has all of its cells with some seeds.
    """
    axes = sorted(grid, key=lambda key: key != "seed")
    app = {key: value for key, value in defaults().items() if key not in SET_HERE}
    seen: set[str] = set()
    for values in product(*(grid[key][0] for key in axes)):  # type: ignore[call-overload]
        here = {key: (value, grid[key][1]) for key, value in zip(axes, values, strict=True)}
        for label, method in methods.items():
            placed = run | here | {key: value for key, value in method.items() if key != "label"}
            cell = Cell(label, {**app, **{key: value for key, (value, _) in placed.items()}})  # type: ignore[dict-item]
            origin = {key: section for key, (_, section) in placed.items()}
            _check_cell(cell, origin, method["label"][1])
            if cell.name in seen:
                raise StudyError(f"{path}: two cells of the grid have the same settings; a value is there twice")
            seen.add(cell.name)
            yield cell, origin


def _check_cell(cell: Cell, origin: Origin, method: Section) -> None:
    """Refuse settings that are out of range, with the line that they come from."""
    for key in ("clients", "iterations", "evaluate-every", "local-steps", "clients-per-round"):
        if key == "clients-per-round" and key not in cell.settings:
            continue
        value = cell.settings.get(key)
        if key not in origin:
            raise method.error("label", f"{key} is missing; [run], [grid] or the [[method]] must set it")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise origin[key].error(key, f"{key} is {value!r}; a whole number, 1 or more, is needed", value)
    if "clients-per-round" in origin:
        place = origin["clients-per-round"]
        if "fraction-train" in origin:
            raise place.error("clients-per-round", "clients-per-round and fraction-train are both set; one must decide")
        if cell.clients_per_round > cell.clients:
            sentence = (
                f"{cell.clients_per_round} clients a round of {cell.clients}; no more than there are can take part"
            )
            raise place.error("clients-per-round", sentence, cell.settings["clients-per-round"])
    try:
        Settings.from_config(cell.config())
    except SettingsError as error:
        key = str(error).split(" ")[0]
        raise origin.get(key, method).error(key, str(error), cell.settings.get(key)) from None


def _known() -> tuple[str, ...]:
    return tuple(sorted({*defaults(), *OWN} - (SET_HERE - set(OWN))))


def _check_keys(section: Section, table: Mapping[str, object], known: tuple[str, ...], where: str = "") -> None:
    for key in table:
        if key not in known:
            raise section.error(key, f"unknown key {key!r}{where}; there are: {', '.join(known)}")


def _settings(section: Section, table: Mapping[str, object], known: tuple[str, ...], where: str) -> Placed:
    _check_keys(section, table, known, where)
    return {key: (value, section) for key, value in table.items()}


def _methods(source: Source, table: Mapping[str, object]) -> Iterator[tuple[str, Placed]]:
    methods = table.get("method", [])
    if not isinstance(methods, list) or not all(isinstance(item, dict) for item in methods):
        raise Section(source).error("method", f"method is {methods!r}; tables [[method]] are needed")
    for number, method in enumerate(methods):
        section = Section(source, f"method {number}")
        label = method.get("label")
        if not isinstance(label, str) or not label.strip():
            raise section.error("label", f"label is {label!r}; each [[method]] needs a text")
        yield label, _settings(section, method, ("label", *_known()), " in [[method]]")


def _table(section: Section, table: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise section.error(key, f"{key} is {value!r}; a table [{key}] is needed")
    return value


def _text(section: Section, table: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise section.error(key, f"{key} is {value!r}; a text is needed")
    return value


def _texts(section: Section, table: Mapping[str, object], key: str) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise section.error(key, f"{key} is {values!r}; a list of texts is needed")
    return tuple(values)


def _targets(section: Section, table: Mapping[str, object]) -> tuple[float, ...]:
    values = table.get("targets", [])
    if not isinstance(values, list) or not all(isinstance(v, int | float) and 0 < v <= 1 for v in values):
        raise section.error("targets", f"targets is {values!r}; a list of accuracies above 0, at most 1, is needed")
    return tuple(map(float, values))
