"""Only fedcomp/flower/compat/ uses what Flower does not promise to keep."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import flwr.app
import flwr.clientapp
import flwr.serverapp

ROOT = Path(__file__).parents[3]
COMPAT = ROOT / "fedcomp" / "flower" / "compat"
ROOMS = ("fedcomp", "server", "clients", "deploy", "benchmarks", "experiments")
PUBLIC = {
    "flwr.app": set(flwr.app.__all__),
    "flwr.clientapp": set(flwr.clientapp.__all__),
    "flwr.clientapp.mod": set(flwr.clientapp.mod.__all__),
    "flwr.serverapp": set(flwr.serverapp.__all__),
    "flwr.serverapp.strategy": set(flwr.serverapp.strategy.__all__),
}
PRIVATE = ("_check_and_log_replies", "_message_id", "_metadata")
REFLECTION = ("__dict__", "__new__", "currentframe", "f_locals")
"""How a function of `fedcomp.flower` would look behind the face of Flower's objects."""


def _used(source: Path) -> Iterator[str]:
    """Yield each name of Flower that `source` uses and Flower does not export, with its line."""
    text, in_flower = source.read_text(), source.is_relative_to(ROOT / "fedcomp" / "flower")
    if not in_flower and not any(word in text for word in ("flwr", *PRIVATE)):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").split(".")[0] == "flwr":
            for name in node.names:
                if name.name not in PUBLIC.get(module, ()):
                    yield f"{source.relative_to(ROOT)}:{node.lineno}: {module}.{name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("flwr."):
                    yield f"{source.relative_to(ROOT)}:{node.lineno}: {name.name}"
        elif isinstance(node, ast.Attribute | ast.Constant):
            name_or_value = node.attr if isinstance(node, ast.Attribute) else node.value
            if name_or_value in PRIVATE or (in_flower and name_or_value in REFLECTION):
                yield f"{source.relative_to(ROOT)}:{node.lineno}: {name_or_value}"


def test_only_one_room_uses_what_flower_does_not_export() -> None:
    sources = [source for room in ROOMS for source in (ROOT / room).rglob("*.py")]
    assert COMPAT / "__init__.py" in sources
    assert not [used for source in sources if not source.is_relative_to(COMPAT) for used in _used(source)]


def test_that_room_uses_it() -> None:
    """The check sees imports, private attributes and reflection: the room that may use them has all three."""
    used = "\n".join(name for source in COMPAT.glob("*.py") for name in _used(source))
    for name in ("flwr.supercore.log", "_check_and_log_replies", "f_locals"):
        assert name in used


def test_the_room_is_the_innermost_of_flower() -> None:
    """Whoever raises Flower reads it alone, so it imports no other file of `fedcomp.flower`."""
    for source in COMPAT.glob("*.py"):
        assert not re.findall(r"^from fedcomp\.flower(?!\.compat)", source.read_text(), re.MULTILINE), source


def test_every_requirement_names_the_same_range_of_versions() -> None:
    projects = (ROOT / "pyproject.toml", ROOT / "benchmarks" / "rounds_app" / "pyproject.toml")
    found = [re.findall(r'"flwr(?:\[\w+\])?([<>=][^";]*)', project.read_text()) for project in projects]
    assert [len(ranges) for ranges in found] == [3, 1]
    assert len({text for ranges in found for text in ranges}) == 1
