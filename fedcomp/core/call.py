"""The text form of settings: ``name(1, key=0.5)``, as in ``stc(density=0.0025)`` or ``dirichlet(alpha=0.1)``."""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from fedcomp.core.types import to_python

T = TypeVar("T")

MAX_QUOTED = 200
"""Characters of a text that an error quotes."""


def parse_call(text: object) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Return name, positional and keyword arguments of ``name(...)``; ``name`` alone is ``name()``.

    Arguments are Python literals; nothing is evaluated.  Raises `ValueError` for anything else.
    """
    if not isinstance(text, str):
        raise ValueError(f"a {type(text).__name__}; a text of the form name(setting=value) is needed")
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, (), {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            args = tuple(ast.literal_eval(arg) for arg in node.args)
            kwargs = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg is not None}
            if len(kwargs) == len(node.keywords):
                return node.func.id, args, kwargs
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise ValueError(
        f"{text[:MAX_QUOTED]!r} is not of the form name(setting=value), with plain numbers and texts as values"
    )


def build(text: str, makers: Mapping[str, Callable[..., T]], noun: str) -> T:
    """Return ``makers[name](...)`` for ``name(...)``; errors call what is made a `noun`.

    Raises `ValueError` for another form, an unknown name or an unknown setting.
    """
    name, args, kwargs = parse_call(text)
    if name not in makers:
        raise ValueError(f"unknown {noun} {name[:MAX_QUOTED]!r}; there are: {', '.join(sorted(makers))}")
    try:
        return makers[name](*args, **kwargs)
    except TypeError as error:
        known = ", ".join(inspect.signature(makers[name]).parameters) or "none"
        reason = str(error).replace("__init__", name).replace(f"{name}() ", "")[:MAX_QUOTED]
        raise ValueError(f"{noun} {text[:MAX_QUOTED]!r} {reason}; the settings of {name} are: {known}") from None


def format_call(name: str, settings: Mapping[str, object]) -> str:
    """Return the text that `parse_call` reads back to the same name and settings."""
    return f"{name}({', '.join(f'{key}={to_python(value)!r}' for key, value in settings.items())})"
