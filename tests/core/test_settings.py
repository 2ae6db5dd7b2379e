"""Settings: what is refused, their text form, and fractions of a number."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pytest

import fedcomp
from fedcomp.core import build, ceil_fraction, check_int, check_range, format_call, parse_call


@pytest.mark.parametrize("value", [0.5, 1, 1.0, np.float32(0.25), np.int64(1), 5e-324])
def test_a_number_in_range_passes(value: object) -> None:
    check_range("density", value, above=0, most=1)


@pytest.mark.parametrize(
    "value",
    [0, -0.0, 1.01, math.nan, math.inf, -math.inf, 10**400, -(10**400), True, "1", None, 1j, [1], np.float32("nan")],
)
def test_a_value_that_is_no_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="density is .* fraction kept, above 0 and at most 1"):
        check_range("density", value, above=0, most=1, what="the fraction kept")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_without_a_range_any_number_that_a_float_holds_passes(value: object) -> None:
    check_range("tolerance", 1.7e308)
    with pytest.raises(ValueError, match="tolerance is "):
        check_range("tolerance", value)


@pytest.mark.parametrize("value", [0, 9, 10**400, -(10**400), 1.0, True, "1"])
def test_a_value_that_is_no_whole_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="bits is .* 1 to 8"):
        check_int("bits", value, 1, 8)


@pytest.mark.parametrize("name", fedcomp.METHODS)
@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e999", "-1e999"])
def test_no_method_takes_a_number_beyond_float64(name: str, number: str) -> None:
    with pytest.raises(
        ValueError, match=f"{number[:9]}|inf|takes 0 positional arguments|the settings of {name} are: none"
    ):
        fedcomp.parse(f"{name}({number})")


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


def test_seven_hundredths_of_a_hundred_are_seven() -> None:
    assert math.ceil(0.07 * 100) == 8
    assert ceil_fraction(0.07, 100) == 7


@pytest.mark.parametrize(
    ("fraction", "n", "expected"),
    [
        (0.5, 0, 0),
        (0.0, 5, 0),
        (1.0, 5, 5),
        (0.5, 5, 3),
        (0.2, 5, 1),
        (0.2000001, 5, 2),
        (1e-9, 5, 1),
        (0.001, 10**9 + 1, 10**6 + 1),
    ],
)
def test_it_rounds_up(fraction: float, n: int, expected: int) -> None:
    assert ceil_fraction(fraction, n) == expected


def test_fractions_of_small_integers_and_decimals_are_exact() -> None:
    for denominator in (3, 7, 49, 100, 400, 1000):
        for numerator in range(1, denominator):
            for n in (1, 49, 100, 7850, 865_482, 2**31 - 1):
                exact = math.ceil(Fraction(numerator, denominator) * n)
                assert ceil_fraction(numerator / denominator, n) == exact


def test_a_call_of_a_known_name_is_an_argument_as_text() -> None:
    known = ("stc",)
    expected = ("balanced", ("stc(density=0.1)",), {"balance": 2})
    assert parse_call("balanced(stc( density = 0.1 ), balance=2)", known) == expected
    for text in ("balanced(topk(density=0.1))", "balanced(stc)", "balanced(os.stc(1))", "balanced([stc(1)])"):
        with pytest.raises(ValueError, match=r"name\(setting=value\)"):
            parse_call(text, known)
