"""The rooms and who may know whom, read from the source: a wrong import is found without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("fedcomp", "server", "clients", "deploy", "benchmarks")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

TORCH = ("fedcomp/tasks/", "clients/", "server/evaluate.py", "fedcomp/backends/torch_backend.py", "benchmarks/")
FLOWER = ("fedcomp/flower/", "server/", "clients/", "benchmarks/")

FORBIDDEN = {
    # what may not be imported, by whom: prefixes of paths -> prefixes of modules
    "fedcomp/errors.py": ("fedcomp",),
    "fedcomp/core/types.py": ("fedcomp.quantize", "fedcomp.entropy", "fedcomp.memory", "fedcomp.compressor"),
    "fedcomp/symbols/": ("fedcomp.quantize", "fedcomp.entropy", "fedcomp.memory", "fedcomp.compressor"),
    "fedcomp/quantize/": ("fedcomp.entropy", "fedcomp.memory", "fedcomp.compressor", "fedcomp.methods", "fedcomp.wire"),
    "fedcomp/entropy/": ("fedcomp.quantize", "fedcomp.memory", "fedcomp.compressor", "fedcomp.methods", "fedcomp.wire"),
    "fedcomp/memory/": ("fedcomp.entropy", "fedcomp.compressor", "fedcomp.methods", "fedcomp.wire"),
    "fedcomp/compressor.py": ("fedcomp.methods", "fedcomp.wire", "fedcomp.sync.replica", "fedcomp.flower"),
    "fedcomp/methods.py": ("fedcomp.wire", "fedcomp.sync.replica", "fedcomp.flower"),
    "fedcomp/wire/": ("fedcomp.sync.replica", "fedcomp.flower"),
    "fedcomp/sync/replica.py": ("fedcomp.flower",),
    "fedcomp/data/": ("fedcomp.flower", "fedcomp.tasks"),
    "fedcomp/tasks/": ("fedcomp.flower",),
    "fedcomp/": ("server", "clients", "deploy", "benchmarks", "tests"),
    "server/": ("clients", "deploy", "benchmarks", "tests"),
    "clients/": ("server", "deploy", "benchmarks", "tests"),
}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that a source imports, ``from a import b`` as ``a.b``; not what only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node)


def within(module: str, prefix: str) -> bool:
    """Whether `module` is `prefix` or lies in it."""
    return module == prefix or module.startswith(prefix + ".")


def modules_of(path: Path) -> list[str]:
    """The modules that the source file imports."""
    return list(imports(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(params=SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def source(request: pytest.FixtureRequest) -> Path:
    """Each source file of the project in turn."""
    path: Path = request.param
    return path


def test_imports_point_one_way(source: Path) -> None:
    name = source.relative_to(ROOT).as_posix()
    banned = [module for path, modules in FORBIDDEN.items() if name.startswith(path) for module in modules]
    wrong = [module for module in modules_of(source) for prefix in banned if within(module, prefix)]
    assert not wrong, f"{name} may not import {wrong}"


def test_torch_stays_in_its_rooms(source: Path) -> None:
    name = source.relative_to(ROOT).as_posix()
    assert name.startswith(TORCH) or not any(within(module, "torch") for module in modules_of(source))


def test_flower_stays_in_its_rooms(source: Path) -> None:
    name = source.relative_to(ROOT).as_posix()
    assert name.startswith(FLOWER) or not any(within(module, "flwr") for module in modules_of(source))


def test_imports_are_absolute(source: Path) -> None:
    relative = [
        node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_a_forbidden_import_would_be_seen_wherever_it_hides() -> None:
    text = "def f():\n    if True:\n        from server.settings import Settings\n    import torch.nn as nn\n"
    assert list(imports(ast.parse(text))) == ["server.settings.Settings", "torch.nn"]


def test_the_dataset_cards_are_no_package_that_would_shadow_another() -> None:
    assert list((ROOT / "datasets").glob("*.toml"))
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_every_room_was_read() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} >= {"fedcomp", "server", "clients", "deploy"}
