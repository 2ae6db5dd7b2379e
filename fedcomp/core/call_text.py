"""The text of a call, ``name(1, key=0.5)`` as in ``stc(density=0.0025)``: read, built and written."""

import ast
import inspect
import keyword
from collections.abc import Callable, Collection, Container, Mapping
from typing import TypeVar

from fedcomp.core.types import to_python

T = TypeVar("T")
MAX_QUOTED = 200
"""Characters of a text that an error quotes."""


def parse_call(text: object, nested: Container[str] = ()) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Return name, positional and keyword arguments of ``name(...)``; ``name`` alone is ``name()``.

    Arguments are Python literals; nothing is evaluated.  An argument that calls a name in `nested` is returned as text.
    Raises `ValueError` for anything else.
    """
    if not isinstance(text, str):
        raise ValueError(f"a {type(text).__name__}; a text of the form name(setting=value) is needed")
    call = text.strip()
    prefix = "_" if keyword.iskeyword(call.partition("(")[0]) else ""  # async(buffer=10) is no call for Python
    try:
        node = ast.parse(prefix + call, mode="eval").body
        if isinstance(node, ast.Name):
            return node.id.removeprefix(prefix), (), {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            args = tuple(_value(arg, nested) for arg in node.args)
            kwargs = {word.arg: _value(word.value, nested) for word in node.keywords if word.arg is not None}
            if len(kwargs) == len(node.keywords):
                return node.func.id.removeprefix(prefix), args, kwargs
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise ValueError(
        f"{text[:MAX_QUOTED]!r} is not of the form name(setting=value), with plain numbers and texts as values"
    )


def split_sum(text: str) -> tuple[str, ...]:
    """Return the terms of a text such as ``a(1) + b(2)``; nothing is looked up.  Raises `ValueError` if it is no expression."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        terms: list[str] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            terms.append(ast.unparse(node.right))
            node = node.left
        return (ast.unparse(node), *reversed(terms))
    except (SyntaxError, ValueError, TypeError, AttributeError, MemoryError, RecursionError):
        raise ValueError(f"{repr(text)[:MAX_QUOTED]} is not of the form name(setting=value) + ...") from None


def _value(node: ast.expr, nested: Container[str]) -> object:
    """Return a literal's value, or the text of a call of a name in `nested`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in nested:
        return ast.unparse(node)
    return ast.literal_eval(node)


def build(text: str, makers: Mapping[str, Callable[..., T]], noun: str, nested: Collection[str] = ()) -> T:
    """Return ``makers[name](...)`` for ``name(...)``; errors call the result a `noun`.

    An argument that calls a name in `makers` or in `nested` is passed on as text.

    Raises `ValueError` for another form, an unknown name or an unknown setting.
    """
    name, args, kwargs = parse_call(text, {*makers, *nested})
    if name not in makers:
        raise ValueError(f"unknown {noun} {name[:MAX_QUOTED]!r}; there are: {', '.join(sorted(makers))}")
    try:
        return makers[name](*args, **kwargs)
    except TypeError as error:
        known = ", ".join(inspect.signature(makers[name]).parameters) or "none"
        reason = str(error).replace("__init__", name).replace(f"{name}() ", "")[:MAX_QUOTED]
        raise ValueError(f"{noun} {text[:MAX_QUOTED]!r} {reason}; the settings of {name} are: {known}") from None


def parse_setting(name: str, text: str, parse: Callable[[str], T]) -> T:
    """Return ``parse(text)``; its `ValueError` begins with the `name` of the setting and its text."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name} is {text!r}; {error}") from None


def arguments_of(signature: inspect.Signature, *args: object, **kwargs: object) -> inspect.BoundArguments:
    """Return all arguments of a call by name, defaults included; numpy scalars become Python ones, as a text writes them."""
    given = signature.bind(*map(to_python, args), **{key: to_python(value) for key, value in kwargs.items()})
    given.apply_defaults()
    return given


def settings_of(given: inspect.BoundArguments) -> dict[str, object]:
    """Return the arguments by name that a text needs: the first, and those that differ from their defaults."""
    parameters = given.signature.parameters
    first = next(iter(parameters), None)
    return {key: value for key, value in given.arguments.items() if key == first or value != parameters[key].default}


def format_call(name: str, settings: Mapping[str, object]) -> str:
    """Return the text that `parse_call` reads back to the same name and settings."""
    return f"{name}({', '.join(f'{key}={to_python(value)!r}' for key, value in settings.items())})"
