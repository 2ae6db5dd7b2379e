"""What registries of methods and of training plug-ins share."""

import inspect
from dataclasses import dataclass

import pytest

from fedcomp.core import Registry, format_call


@dataclass(frozen=True)
class Info:
    paper: str


def registry() -> Registry[str, Info]:
    return Registry("method", "fedcomp.no_group", str)


def text(name: str, settings: tuple[tuple[str, object], ...], result: float) -> str:
    return f"{format_call(name, dict(settings))} = {result}"


def half(x: float = 1.0, exact: bool = True) -> float:
    """Return half of `x`."""
    return x / 2 if exact else x // 2


def test_an_entry_is_in_the_mapping_at_once() -> None:
    found = registry()
    view = iter(found)
    constructor = found.register(Info("Author et al., 2026"), text)(half)
    assert found["half"] is constructor
    assert list(found) == ["half"]
    assert len(found) == 1
    assert found.about("half") == Info("Author et al., 2026")
    assert list(view) == [], "an iterator that has started does not change"


def test_the_constructor_hands_on_the_first_setting_and_those_that_differ_from_their_defaults() -> None:
    constructor = registry().register(Info(""), text)(half)
    assert constructor() == "half(x=1.0) = 0.5"
    assert constructor(3.0, exact=True) == "half(x=3.0) = 1.5"
    assert constructor(exact=False) == "half(x=1.0, exact=False) = 0.0"


def test_the_constructor_shows_the_settings_and_what_it_returns() -> None:
    found = registry()
    constructor = found.register(Info(""), text)(half)
    assert str(inspect.signature(constructor)) == "(x: float = 1.0, exact: bool = True) -> str"
    assert constructor.__doc__ == half.__doc__
    assert found.settings("half") == "x=1.0, exact=True"


def test_a_taken_name_is_refused_and_the_entry_that_has_it_stays() -> None:
    found = registry()
    constructor = found.register(Info("Author et al., 2026"), text)(half)
    with pytest.raises(ValueError, match=r"^method 'half' exists already \(Author et al., 2026\)"):
        found.register(Info("Others, 2026"), text)(half)
    assert found["half"] is constructor
    assert found.about("half").paper == "Author et al., 2026"


def test_a_setting_without_a_default_or_a_name_is_refused() -> None:
    """A list of all entries makes each one with its defaults, and a text names its settings."""

    def required(x: float) -> float:
        return x

    def unnamed(x: float = 1.0, /) -> float:
        return x

    def any_number(*x: float) -> float:
        return sum(x)

    def any_name(**x: float) -> float:
        return sum(x.values())

    found = registry()
    for function, setting in (
        (required, "x: float"),
        (unnamed, "x: float = 1.0"),
        (any_number, "\\*x"),
        (any_name, "\\*\\*x"),
    ):
        with pytest.raises(ValueError, match=f"{function.__name__}.*{setting}.*default"):
            found.register(Info(""), text)(function)
    assert not found


def test_an_unknown_name_is_a_key_error() -> None:
    found = registry()
    assert "gzip" not in found
    assert found.get("gzip") is None
    with pytest.raises(KeyError, match="gzip"):
        found.about("gzip")
