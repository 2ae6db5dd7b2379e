import pytest

from fedcomp.data import ImageRotation, parse_partition, split_partition
from fedcomp.data.partition_text import Noise


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("iid", ("iid",)),
        (" classes(2)+noise(0.1) ", ("classes(2)", "noise(0.1)")),
        ("iid() + rotation(degrees=1e+1) + noise(0.1)", ("iid()", "rotation(degrees=10.0)", "noise(0.1)")),
        ("unknown('a + b', [1, 2])", ("unknown('a + b', [1, 2])",)),
    ],
)
def test_a_text_splits_at_the_plus_signs_between_its_calls(text: str, terms: tuple[str, ...]) -> None:
    assert split_partition(text) == terms


@pytest.mark.parametrize(
    "text", ["", "iid(", "iid +", "classes(2", "+" * 100_000, "(" * 5000 + ")" * 5000, "\0", None, 3]
)
def test_any_other_text_is_refused_in_one_short_sentence(text: str) -> None:
    for parse in (split_partition, parse_partition):
        with pytest.raises(ValueError, match="partition") as caught:
            parse(text)
        assert len(str(caught.value)) < 400
        assert "\n" not in str(caught.value)


def test_a_partition_is_a_scheme_and_then_skews_in_their_order() -> None:
    assert parse_partition("classes(2)").skews == ()
    text = " dirichlet(alpha=1e+1, min_size=2)  + rotation(degrees=30)+noise(sigma=0.1) "
    assert parse_partition(text).skews == (ImageRotation(30), Noise(0.1))


def test_only_the_own_scheme_assigns_no_samples() -> None:
    assert parse_partition("own()").own
    assert not any(parse_partition(text).own for text in ("iid()", "classes(2) + noise(0.1)"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("iid + blur(3)", "'blur'"),
        ("iid + noise(0)", "sigma is 0;"),
        ("iid + rotation(181)", "degrees is 181;.*180"),
        ("iid + rotation()", "degrees"),
        ("iid + noise(1) + noise(2)", "twice"),
        ("noise(1) + iid", "'iid'"),
        ("noise(1)", "'noise'"),
        ("iid - noise(1)", "'iid - noise.1.'"),
        ("own(3)", "argument"),
        ("own() + noise(0.1)", "own"),
    ],
)
def test_a_term_that_does_not_fit_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_partition(text)
