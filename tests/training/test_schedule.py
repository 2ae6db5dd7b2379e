"""Learning-rate schedules: values by hand, bounds, and wrong texts."""

import itertools

import pytest

from fedcomp.training import parse_schedule


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("constant", (1.0, 1.0, 1.0)),
        ("cosine", (1.0, 0.5, 0.0)),
        ("cosine(last=0.2)", (1.0, 0.6, 0.2)),
        ("exponential", (1.0, 0.1**0.5, 0.1)),
        ("exponential(0.25)", (1.0, 0.5, 0.25)),
        ("steps", (1.0, 0.1, 0.01)),
        ("steps([0.2, 0.9], factor=0.5)", (1.0, 0.5, 0.25)),
        ("steps([])", (1.0, 1.0, 1.0)),
    ],
)
def test_factors_at_the_start_in_the_middle_and_at_the_end(text: str, factors: tuple[float, float, float]) -> None:
    schedule = parse_schedule(text)
    assert [schedule(share) for share in (0.0, 0.5, 1.0)] == pytest.approx(list(factors))


@pytest.mark.parametrize("text", ["constant", "cosine(0.3)", "exponential(0.3)", "steps([0.1, 0.5], 0.3)"])
def test_no_schedule_rises(text: str) -> None:
    factors = [parse_schedule(text)(number / 1000) for number in range(1000)]
    assert factors[0] == 1.0
    assert all(later <= earlier for earlier, later in itertools.pairwise(factors))
    assert min(factors) > 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("warm(1)", "unknown learning-rate schedule 'warm'; there are: constant, cosine, exponential, steps"),
        ("cosine(last=2)", "last is 2"),
        ("exponential(0)", "last is 0"),
        ("steps(0.5)", "at is 0.5"),
        ("steps([0.5, 2])", "a share in at is 2"),
        ("steps(factor=0)", "factor is 0"),
        ("cosine(first=1)", "first"),
        ("", "is not of the form"),
    ],
)
def test_a_wrong_text_is_refused(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{found}"):
        parse_schedule(text)
