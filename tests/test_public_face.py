"""What `import fedcomp` offers, and the examples in its docstrings."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fedcomp

ROOT = Path(__file__).parents[1]
EXPORTED = ["METHODS", "Compressor", "FedcompError", "Parts", "parse", "register", "register_codec"]
WITH_EXAMPLES = ["fedcomp", "fedcomp.compressor", "fedcomp.testing", "fedcomp.methods", "fedcomp.methods.registry"]


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


@pytest.mark.parametrize("name", ["stc", "topk"])
def test_the_examples_of_the_methods_print_what_they_show(name: str) -> None:
    """`doctest.testmod` does not find what a decorator has wrapped."""
    (example,) = doctest.DocTestFinder().find(fedcomp.METHODS[name], name, globs=dict(vars(fedcomp)))
    result = doctest.DocTestRunner().run(example)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_the_examples_in_the_docstrings_print_what_they_show() -> None:
    """In another process, since an example registers a method."""
    program = "import doctest, importlib, sys; print(*doctest.testmod(importlib.import_module(sys.argv[1])))"
    for module in WITH_EXAMPLES:
        command = [sys.executable, "-W", "error", "-c", program, module]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert done.stderr == ""
        failed, count = done.stdout.splitlines()[-1].split()
        assert failed == "0", done.stdout
        assert int(count) > 0, f"{module} has no example"
