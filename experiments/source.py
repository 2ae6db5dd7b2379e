"""A study file as tables that know where they stand: `tomllib` reads the values, but does not say from which line."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

Kind = TypeVar("Kind")
Where = tuple[str | int, ...]
"""Keys and indices from the top of a file, as ("method", 0, "label")."""

CLOSINGS = tuple(
    f"\n{quotes}{brackets}" for quotes, brackets in product(("", '"""', "'''"), ("", "]", "]}", "]]", "]}]", "]}}"))
)
"""What may be missing where a text is cut off at the end of a line: only strings and lists run over lines."""


class StudyError(ValueError):
    """A study that cannot run as it is written; the text is one sentence that names file and line."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of the file at `path`."""

    path: Path
    text: str

    def line(self, where: Where) -> int | None:
        """Return the number of the line on which the key or the entry at `where` begins; None where there is none.

        It is the first line up to which the text, with what is open closed, holds it.  So the parser decides, and whatever
        looks like a key in a string or a comment does not.
        """
        lines = self.text.split("\n")
        for number in range(1, len(lines) + 1):
            table = _parse_cut("\n".join(lines[:number]))
            if table is not None and _holds(table, where):
                return number
        return None


def _parse_cut(text: str) -> object:
    """Return what the first lines of a file hold; None where they end in a way that has no closing."""
    for closing in CLOSINGS:
        try:
            return tomllib.loads(text + closing)
        except tomllib.TOMLDecodeError:
            continue
    return None


def _holds(value: object, where: Where) -> bool:
    for key in where:
        inside: Any = dict(enumerate(value)) if isinstance(value, list) else value
        if not isinstance(inside, dict) or key not in inside:
            return False
        value = inside[key]
    return True


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a file, or an entry of a list: what an error points at."""

    source: Source
    where: Where = ()

    def at(self, *keys: str | int) -> "Place":
        """Return the place of what this one holds."""
        return Place(self.source, self.where + keys)

    def error(self, sentence: str) -> StudyError:
        """Return the error to raise, with file and line; of a key that is missing, the line of the table around it."""
        numbers = (self.source.line(self.where[:length]) for length in range(len(self.where), 0, -1))
        number = next((number for number in numbers if number is not None), None)
        return StudyError(f"{self.source.path}{'' if number is None else f', line {number}'}: {sentence}")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file.  What it returns is of the kind that is asked for; anything else raises `StudyError`."""

    place: Place
    values: Mapping[str, object]
    name: str = ""
    """As errors say it, in brackets."""

    def check_keys(self, known: Sequence[str]) -> None:
        """Refuse keys that are not among the `known`."""
        for key in self.values:
            if key not in known:
                where = f" in {self.name}" if self.name else ""
                raise self.place.at(key).error(f"unknown key {key!r}{where}; there are: {', '.join(known)}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; without a `default` it must be there, and not be blank."""
        if key not in self.values and default is None:
            raise self.place.at(key).error(f"{key} is missing; a text is needed")
        value = self.values.get(key, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.place.at(key).error(f"{key} is {value!r}; a text is needed")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; an empty one where there is none."""
        return tuple(self._list(key, str, "a list of texts"))

    def shares(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers above 0 and at most 1; an empty one where there is none."""
        needed = "a list of numbers above 0 and at most 1"
        values = self._list(key, object, needed)
        for at, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise self.place.at(key, at).error(f"{key} holds {value!r}; {needed} is needed")
        return tuple(float(str(value)) for value in values)

    def table(self, key: str) -> "Table":
        """Return the table [key]; an empty one where there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.place.at(key).error(f"{key} is {value!r}; a table [{key}] is needed")
        return Table(self.place.at(key), value, f"[{key}]")

    def tables(self, key: str) -> tuple["Table", ...]:
        """Return the tables [[key]]; none where there is none."""
        values = self._list(key, dict, f"a list of tables [[{key}]]")
        return tuple(Table(self.place.at(key, at), value, f"[[{key}]]") for at, value in enumerate(values))

    def _list(self, key: str, kind: type[Kind], needed: str) -> list[Kind]:
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise self.place.at(key).error(f"{key} is {values!r}; {needed} is needed")
        for at, value in enumerate(values):
            if not isinstance(value, kind):
                raise self.place.at(key, at).error(f"{key} holds {value!r}; {needed} is needed")
        return values


def read_table(path: Path) -> Table:
    """Return the file's topmost table; raise `StudyError` for a file that is not there or no TOML."""
    try:
        text = path.read_bytes().decode()
        return Table(Place(Source(path, text)), tomllib.loads(text))
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror}; a study file is needed") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{path}, line {line}: byte {error.object[error.start]:#04x} is no UTF-8; TOML is") from None
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path}: {error}; a TOML file is needed") from None
