"""Only fedcomp/flower/_compat.py uses what Flower does not promise to keep."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import flwr.app
import flwr.clientapp
import flwr.serverapp

ROOT = Path(__file__).parents[2]
COMPAT = ROOT / "fedcomp" / "flower" / "_compat.py"
ROOMS = ("fedcomp", "server", "clients", "deploy", "benchmarks", "experiments")
PUBLIC = {
    "flwr.app": set(flwr.app.__all__),
    "flwr.clientapp": set(flwr.clientapp.__all__),
    "flwr.clientapp.mod": set(flwr.clientapp.mod.__all__),
    "flwr.serverapp": set(flwr.serverapp.__all__),
    "flwr.serverapp.strategy": set(flwr.serverapp.strategy.__all__),
}


def _used(source: Path) -> Iterator[str]:
    """Yield each name of Flower that `source` uses and Flower does not export, with its line."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").split(".")[0] == "flwr":
            for name in node.names:
                if name.name not in PUBLIC.get(module, ()):
                    yield f"{source.relative_to(ROOT)}:{node.lineno}: {module}.{name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("flwr."):
                    yield f"{source.relative_to(ROOT)}:{node.lineno}: {name.name}"
        elif isinstance(node, ast.Attribute | ast.Constant):
            text = node.attr if isinstance(node, ast.Attribute) else node.value
            if text in ("_check_and_log_replies", "_message_id", "_metadata"):
                yield f"{source.relative_to(ROOT)}:{node.lineno}: {text}"


def test_only_one_file_uses_what_flower_does_not_export() -> None:
    sources = [source for room in ROOMS for source in (ROOT / room).rglob("*.py")]
    assert COMPAT in sources
    assert not [used for source in sources if source != COMPAT for used in _used(source)]


def test_that_file_uses_it() -> None:
    """The check sees imports and private attributes: the file that may use them has both."""
    used = "\n".join(_used(COMPAT))
    assert "flwr.supercore.log" in used
    assert "_check_and_log_replies" in used


def test_every_requirement_names_the_same_range_of_versions() -> None:
    projects = (ROOT / "pyproject.toml", ROOT / "benchmarks" / "rounds_app" / "pyproject.toml")
    found = [re.findall(r'"flwr(?:\[\w+\])?([<>=][^";]*)', project.read_text()) for project in projects]
    assert [len(ranges) for ranges in found] == [3, 1]
    assert len({text for ranges in found for text in ranges}) == 1
