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

``include = ["methods.toml"]`` takes the [run] and the [[method]] tables of other files, named from this one's folder; its
own [run] overrides theirs.  A value of [grid] goes before one of [run], and one of a [[method]] before both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from experiments.configuration import OWN, SET_HERE, Cell, Value, defaults
from experiments.source import Place, StudyError, Table, read_table
from server.settings import Settings, SettingsError

__all__ = ["Cell", "Plan", "StudyError", "read_plan"]

TOP = ("title", "question", "targets", "notes", "include", "run", "grid", "method")
KNOWN = tuple(sorted({*defaults(), *OWN} - SET_HERE))
"""What [run], [grid] and a [[method]] may set."""
FOR_ALL = ("device", "weight-decay")
"""What only [run] may set: the table of results has no column that would tell such cells apart."""
COUNTS = ("clients", "clients-per-round", "iterations", "evaluate-every", "local-steps")

Setting = tuple[object, Place]
"""A value, and where it stands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A study: words for the report, and its cells, in the order in which they run."""

    title: str
    question: str
    targets: tuple[float, ...]
    notes: tuple[str, ...]
    axes: tuple[str, ...]
    """The settings of the grid."""
    cells: tuple[Cell, ...]
    places: Mapping[str, Mapping[str, Place]] = field(repr=False)
    """Name of a cell -> setting -> where it is set; its method is found as "label"."""

    def place(self, cell: Cell, key: str) -> Place:
        """Return where a setting of a cell stands; for one that has its default, where the method does."""
        places = self.places[cell.name]
        return places.get(key, places["label"])

    def describe(self, cell: Cell) -> str:
        """Return the method, and the settings in which cells differ, as ``STC 1/100, seed 0``."""
        return ", ".join([cell.label, *(f"{key} {cell.settings[key]}" for key in self.axes)])


def read_plan(path: Path) -> Plan:
    """Return the study in the TOML file `path`; raise `StudyError`, naming file and line, for one that cannot be."""
    study = read_table(path)
    study.check_keys(TOP)
    title = study.text("title")
    run: dict[str, Setting] = {}
    methods: dict[str, dict[str, Setting]] = {}
    for part in (*_included(study, path.parent), study):
        run |= _settings(part.table("run"))
        for table in part.tables("method"):
            _check_varied(table)
            method = _settings(table, "label")
            label = table.text("label")
            if label in methods:
                raise table.place.at("label").error(f"label {label!r} is there twice; each method needs its own")
            methods[label] = method
    if not methods:
        raise StudyError(f"{path}: no [[method]]; at least one is needed")
    grid = _grid(study.table("grid"), methods)
    found = list(_cells(run, grid, methods, study.place.at("run")))
    return Plan(
        title=title,
        question=study.text("question", ""),
        targets=study.shares("targets"),
        notes=study.texts("notes"),
        axes=tuple(grid),
        cells=tuple(cell for cell, _ in found),
        places={cell.name: places for cell, places in found},
    )


def _included(study: Table, folder: Path) -> Iterator[Table]:
    for at, name in enumerate(study.texts("include")):
        if not (folder / name).is_file():
            raise study.place.at("include", at).error(f"no file {folder / name}; a TOML file to include is needed")
        table = read_table(folder / name)
        table.check_keys(("run", "method"))
        yield table


def _settings(table: Table, *others: str) -> dict[str, Setting]:
    """Return the settings in a table, with their places; `others` are keys that it may have beside them."""
    _check_settings(table, *others)
    for key, value in table.values.items():
        if isinstance(value, list):
            raise table.place.at(key).error(f"{key} is a list; a single value is needed, and lists stand in [grid]")
    return {key: (value, table.place.at(key)) for key, value in table.values.items()}


def _grid(table: Table, methods: Mapping[str, Mapping[str, Setting]]) -> dict[str, list[Setting]]:
    """Return the values of each setting, with their places."""
    _check_varied(table)
    _check_settings(table)
    grid: dict[str, list[Setting]] = {}
    for key, values in table.values.items():
        place = table.place.at(key)
        if not isinstance(values, list) or not values:
            raise place.error(f"{key} is {values!r}; a list of values is needed")
        if any(key in method for method in methods.values()):
            raise place.error(f"{key} is in [grid] and in a [[method]]; one of them must decide")
        for at, value in enumerate(values):
            if value in values[:at]:
                raise place.at(at).error(f"{key} holds {value!r} twice; each value is needed once")
        grid[key] = [(value, place.at(at)) for at, value in enumerate(values)]
    return grid


def _check_varied(table: Table) -> None:
    """Refuse settings that may not differ from cell to cell."""
    for key in FOR_ALL:
        if key in table.values:
            may = ", ".join(known for known in KNOWN if known not in FOR_ALL)
            raise table.place.at(key).error(f"{key} is the same for all cells, and stands in [run]; here may be: {may}")


def _check_settings(table: Table, *others: str) -> None:
    for key in table.values:
        if key in SET_HERE:
            raise table.place.at(key).error(f"{key} is what a study sets itself; there are: {', '.join(KNOWN)}")
        if key == "sampling-decay":
            raise table.place.at(key).error(f"{key} stays 0 in a study, whose clients a round are counted as fixed")
    table.check_keys((*others, *KNOWN))


def _cells(
    run: Mapping[str, Setting],
    grid: Mapping[str, list[Setting]],
    methods: Mapping[str, Mapping[str, Setting]],
    missing: Place,
) -> Iterator[tuple[Cell, dict[str, Place]]]:
    """Yield the cells, checked, with the places of their settings; `missing` is where one that is not there belongs.

    The seed turns slowest: a study that is stopped halfway has all of its cells with some seeds.
    """
    axes = sorted(grid, key=lambda key: key != "seed")
    given: dict[str, Value] = {key: value for key, value in defaults().items() if key in KNOWN and key not in OWN}
    for values in product(*(grid[key] for key in axes)):
        for label, method in methods.items():
            settings = {**run, **dict(zip(axes, values, strict=True)), **method}
            places = {key: place for key, (_, place) in settings.items()}
            chosen = {key: value for key, (value, _) in settings.items() if key != "label"}
            _check_counts(chosen, places, missing)
            cell = Cell(label, {**given, **chosen})  # type: ignore[dict-item]  # what is no `Value` is refused now
            try:
                Settings.from_config(cell.config())
            except SettingsError as error:
                raise places.get(str(error).split()[0], places["label"]).error(str(error)) from None
            yield cell, places


def _check_counts(settings: Mapping[str, object], places: Mapping[str, Place], missing: Place) -> None:
    """Refuse what a study says in its own way: how many nodes and steps there are."""
    for key in COUNTS:
        value = settings.get(key)
        if key not in settings and key != "clients-per-round":
            raise missing.error(f"{key} is missing; [run], [grid] or the [[method]] must set it")
        if key in settings and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise places[key].error(f"{key} is {value!r}; a whole number, 1 or more, is needed")
    taking_part, clients = settings.get("clients-per-round", 0), settings["clients"]
    if taking_part and "fraction-train" in settings:
        raise places["clients-per-round"].error("clients-per-round and fraction-train are both set; one must decide")
    if taking_part > clients:  # type: ignore[operator]  # counts, both
        raise places["clients-per-round"].error(
            f"clients-per-round is {taking_part} of {clients} clients; no more than there are can take part"
        )
