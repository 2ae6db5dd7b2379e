"""The text of a call: read, built and written; anything else is refused."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from fedcomp.core import build, format_call, parse_call


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("stc", ("stc", (), {})),
        ("stc()", ("stc", (), {})),
        (" stc( 0.5 ) ", ("stc", (0.5,), {})),
        ("a(1, -2, x='b', y=None, z=True)", ("a", (1, -2), {"x": "b", "y": None, "z": True})),
        ("a(x=[1, 2], y={'k': (1,)})", ("a", (), {"x": [1, 2], "y": {"k": (1,)}})),
    ],
)
def test_a_name_with_literals_is_read(text: str, parsed: object) -> None:
    assert parse_call(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0.5",
        "'stc'",
        "stc(",
        "stc)",
        "stc(density=)",
        "stc(density=x)",
        "stc(1 / 400)",
        "stc(open('f'))",
        "stc(density=0.1, density=0.2)",
        "stc(**{'density': 0.1})",
        "stc(*[0.1])",
        "stc(0.1); dense()",
        "stc(0.1)(0.2)",
        "os.system('x')",
        "lambda: 0",
        "[stc for stc in ()]",
        "stc(density=0.1) or dense()",
        "stc\0",
        "stc(" + "(" * 10_000,
        "stc(" + "9" * 10_000 + ")",
        "\ud800",
    ],
)
def test_anything_else_is_refused_and_nothing_is_evaluated(text: str) -> None:
    with pytest.raises(ValueError, match=r"name\(setting=value\)"):
        parse_call(text)


MAKERS: Mapping[str, Callable[..., dict[str, object]]] = {
    "first": lambda alpha=1: {"alpha": alpha},
    "second": dict,
}


def test_a_text_builds_what_it_names() -> None:
    assert build("first(alpha=3)", MAKERS, "thing") == {"alpha": 3}
    assert build("first(3)", MAKERS, "thing") == {"alpha": 3}
    assert build("second", MAKERS, "thing") == {}


def test_an_unknown_name_is_refused_with_a_list_of_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'third'.* first, second"):
        build("third()", MAKERS, "thing")


@pytest.mark.parametrize("text", ["x" * 100_000, "first(" + "x" * 100_000 + "=1)", "first(" + "(" * 100_000])
def test_an_error_quotes_only_the_beginning_of_a_long_text(text: str) -> None:
    with pytest.raises(ValueError, match="first|form") as caught:
        build(text, MAKERS, "thing")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["first(beta=1)", "first(1, 2)", "first(1, alpha=2)"])
def test_an_unknown_setting_is_refused_and_never_ignored(text: str) -> None:
    with pytest.raises(ValueError, match="alpha"):
        build(text, MAKERS, "thing")


def test_a_formatted_call_is_read_back() -> None:
    settings: dict[str, object] = {"a": 0.1, "b": "it's", "c": 1, "d": None, "e": -1e-30}
    assert parse_call(format_call("name", settings)) == ("name", (), settings)
    assert format_call("name", {}) == "name()"


def test_numpy_numbers_are_written_as_plain_ones() -> None:
    settings = {"a": np.float64(0.1), "b": np.int64(3), "c": np.float32(0.5), "d": np.bool_(True), "e": np.str_("x")}
    assert format_call("name", settings) == "name(a=0.1, b=3, c=0.5, d=True, e='x')"


def test_a_call_of_a_known_name_is_an_argument_as_text() -> None:
    known = ("stc",)
    expected = ("balanced", ("stc(density=0.1)",), {"balance": 2})
    assert parse_call("balanced(stc( density = 0.1 ), balance=2)", known) == expected
    for text in ("balanced(topk(density=0.1))", "balanced(stc)", "balanced(os.stc(1))", "balanced([stc(1)])"):
        with pytest.raises(ValueError, match=r"name\(setting=value\)"):
            parse_call(text, known)
