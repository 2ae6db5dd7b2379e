"""What `import fedcomp` offers, and the examples in its docstrings."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml

import fedcomp
from fedcomp.training import PLUGINS

ROOT = Path(__file__).parents[1]
EXPORTED = ["METHODS", "Compressor", "FedcompError", "Parts", "parse", "register", "register_codec"]
STABLE = ["flower", "training", "testing"]
ROOMS = ("fedcomp", "server", "clients", "deploy", "benchmarks", "experiments")


def test_all_lists_the_fixed_names_and_every_method() -> None:
    assert sorted(vars(fedcomp)["__all__"]) == sorted([*EXPORTED, *fedcomp.METHODS])


@pytest.mark.parametrize("name", fedcomp.METHODS)
def test_every_method_is_exported_with_the_settings_of_its_text(name: str) -> None:
    method = getattr(fedcomp, name)
    assert method is fedcomp.METHODS[name]
    signature = inspect.signature(method)
    assert signature.return_annotation is fedcomp.Compressor
    for parameter in signature.parameters.values():
        assert parameter.annotation is not parameter.empty
        assert parameter.default is not parameter.empty
    defaults = {parameter.name: parameter.default for parameter in signature.parameters.values()}
    assert fedcomp.parse(str(method(**defaults))) == fedcomp.parse(name)


@pytest.mark.parametrize("name", [name for name, method in fedcomp.METHODS.items() if ">>>" in (method.__doc__ or "")])
def test_the_examples_of_the_methods_print_what_they_show(name: str) -> None:
    """`doctest.testmod` does not find what a decorator has wrapped."""
    (example,) = doctest.DocTestFinder().find(fedcomp.METHODS[name], name, globs=dict(vars(fedcomp)))
    result = doctest.DocTestRunner().run(example)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_the_examples_in_the_docstrings_print_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every module that shows any."""
    for registry in (fedcomp.METHODS, PLUGINS):
        registry.load_plugins()
        monkeypatch.setattr(registry, "_entries", dict(vars(registry)["_entries"]))  # some examples register one
    files = [path for path in sorted((ROOT / "fedcomp").rglob("*.py")) if ">>> " in path.read_text()]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    assert len(modules) > 20
    results = {module: doctest.testmod(importlib.import_module(module)) for module in modules}
    assert [module for module, result in results.items() if result.failed] == []
    nothing = {module for module, result in results.items() if not result.attempted}
    assert nothing <= {"fedcomp.methods.quantization", "fedcomp.methods.sparsification"}, "the test above runs those"


def _modules(folder: Path) -> dict[str, set[str]]:
    """Return the modules that each page of the API reference in `folder` describes."""
    return {
        str(page.relative_to(ROOT / "docs")): set(re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE))
        for page in folder.glob("*.md")
    }


def test_the_modules_with_stable_names_have_public_pages_in_the_reference() -> None:
    section = (ROOT / "docs" / "reference" / "stability.md").read_text()
    stable = section.partition("* **texts**")[0]
    assert set(re.findall(r"`(fedcomp[.\w]*)`", stable)) == {"fedcomp", *(f"fedcomp.{each}" for each in STABLE)}
    public, internals = (
        _modules(ROOT / "docs" / "reference" / "api"),
        _modules(ROOT / "docs" / "reference" / "api" / "internals"),
    )
    reference = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"][-1]["Reference"]
    *pages, last = reference[-1]["API reference"]
    assert (set(pages), set(last["Internals"])) == (set(public), set(internals))
    described = set[str]().union(*public.values())
    assert described >= {"fedcomp", *(f"fedcomp.{each}" for each in (*STABLE, "split", "gossip"))}
    assert described.isdisjoint(set().union(*internals.values()))


def test_no_public_class_name_is_in_two_files() -> None:
    """One name means one thing."""
    homes: dict[str, list[str]] = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) if "_pb2" not in path.name):
        classes = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        for name in classes:
            homes.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert not {name: places for name, places in homes.items() if len(places) > 1 and not name.startswith("_")}
