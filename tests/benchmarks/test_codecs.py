"""The codec benchmark runs, and measures what it says."""

import math
import sys

import pytest

import fedcomp
from benchmarks import codecs


def test_the_entropy_bound_is_the_textbook_one() -> None:
    # H2(1/4) = 0.8113 bits; 1,000 positions and 250 fair signs
    assert codecs.entropy_bound(1000, 250) == pytest.approx((811.278 + 250) / 8, rel=1e-5)


def test_a_measured_body_is_the_one_that_encode_gives() -> None:
    measured = codecs.measure(fedcomp.dense(), 1000, repeats=1)
    assert measured.size == 4000
    assert measured.encode > 0
    assert measured.decode > 0
    assert measured.peak > 0.9, "dense copies the vector"
    sparse = codecs.measure(fedcomp.stc(density=0.01), 100_000, repeats=1)
    assert sparse.size < 1.05 * codecs.entropy_bound(100_000, 1000)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--entries", "5000"], [f"1/{inverse}" for inverse in codecs.DENSITIES]),
        (["--method", "dense()", "--entries", "700"], ["2,800"]),
    ],
)
def test_it_prints_a_row_a_density(
    options: list[str], shown: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["codecs", "--repeats", "1", *options])
    codecs.main()
    lines = capsys.readouterr().out.splitlines()[-len(shown) :]
    assert all(text in line for text, line in zip(shown, lines, strict=True))


def test_the_bound_of_everything_kept_is_its_signs() -> None:
    assert codecs.entropy_bound(800, 799) > 799 / 8
    assert math.isfinite(codecs.entropy_bound(10, 1))
