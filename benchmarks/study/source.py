"""Where in a study file something stands: `tomllib` reads the values, but does not say from which line."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HEADER = re.compile(r"\s*(\[{1,2})\s*([\w-]+)\s*\]{1,2}\s*(#.*)?")


class StudyError(ValueError):
    """A study that cannot run as it is written; the text is one sentence that names file and line."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of the file at `path`."""

    path: Path
    text: str

    def line(self, section: str, key: str, value: object = None) -> int | None:
        """Return the number of the line where `key` is set, or `value` in its list; None where it is not found.

        `section` is a table's name, "" before the first, and "method 0", "method 1" ... for those of an array.
        """
        here, counts, found = "", dict[str, int](), None
        for number, line in enumerate(self.text.splitlines(), 1):
            header = HEADER.fullmatch(line)
            if header:
                if found is not None:
                    break
                name = header[2]
                here = f"{name} {counts.get(name, 0)}" if header[1] == "[[" else name
                counts[name] = counts.get(name, 0) + 1
                if here == section and key == name:
                    return number
            elif found is None and here == section and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
                found = number
            elif found is not None and "=" in line.split("#")[0].split('"')[0]:
                break  # the next key
            if found is not None and value is not None and _has(line, value):
                return number
        return found


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a study file, or what stands before the first."""

    source: Source
    name: str = ""

    def error(self, key: str, sentence: str, value: object = None) -> StudyError:
        """Return the error to raise for `key`, or a `value` in its list, with file and line."""
        number = self.source.line(self.name, key, value)
        return StudyError(f"{self.source.path}{'' if number is None else f', line {number}'}: {sentence}")


def _has(line: str, value: object) -> bool:
    text = json.dumps(value) if isinstance(value, str) else str(value)
    return text in line or (isinstance(value, str) and f"'{value}'" in line)
