"""Kept entries of few magnitudes: bodies by hand, back and forth, their size, and damage."""

import numpy as np
import pytest

from fedcomp.core import Vector
from fedcomp.entropy import SparseLevelsCode
from fedcomp.entropy.bodies.sparse import GEOMETRIC, LISTED
from fedcomp.entropy.codes.positions import DELTA, KINDS
from fedcomp.errors import FedcompError
from fedcomp.quantized import SparseLevels, geometric
from tests.entropy.laws import check_round_trip, same
from tests.reference import entropy_bits, levels_entries


def floats(*entries: float) -> Vector:
    return np.array(entries, np.float32)


INDICES, NEGATIVE = np.array([4, 13, 14, 100]), np.array([False, True, True, False])
BY_HAND = SparseLevels(200, INDICES, NEGATIVE, np.array([0, 1, 1, 0], np.uint8), floats(0.5, 0.25))
BODY = "c801 04 00 01 0000003f 0000803e 01 04 02 1f00 4805 60 00 02 60"
HALVES = SparseLevels(200, INDICES, NEGATIVE, np.array([0, 1, 1, 0], np.uint8), floats(0.5, 0.25), 2.0)
SERIES = "c801 04 01 01 0000003f 0000000000000040 03 04 01 10 5910 56 60 00 02 60"
ENTRIES = {4: 0.5, 13: -0.25, 14: -0.25, 100: 0.5}


def draw(rng: np.random.Generator, n: int, k: int, count: int, base: float = 0.0) -> SparseLevels:
    indices = np.sort(rng.choice(n, k, replace=False)).astype(np.int64)
    first = np.float32(rng.uniform(1, 9) * 10.0 ** rng.integers(-20, 38))
    magnitudes = geometric(first, base, count) if base else np.sort(first * rng.uniform(0.01, 1, count))
    levels = rng.integers(0, count, k).astype(np.uint8)
    return SparseLevels(n, indices, rng.random(k) < 0.5, levels, magnitudes.astype(np.float32), base)


def test_the_body_is_the_one_written_by_hand() -> None:
    assert SparseLevelsCode().encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(SparseLevelsCode().decode(bytes.fromhex(BODY), 200), BY_HAND)
    assert levels_entries(bytes.fromhex(BODY)) == (200, ENTRIES)


def test_a_series_of_magnitudes_is_its_first_and_its_base() -> None:
    code = SparseLevelsCode("delta keys")
    assert code.encode(HALVES) == bytes.fromhex(SERIES)
    assert same(SparseLevelsCode().decode(bytes.fromhex(SERIES), 200), HALVES)
    assert levels_entries(bytes.fromhex(SERIES)) == (200, ENTRIES)


def test_one_magnitude_takes_no_levels() -> None:
    one = SparseLevels(200, INDICES, NEGATIVE, np.zeros(4, np.uint8), floats(0.5))
    body = bytes.fromhex("c801 04 00 00 0000003f 01 04 02 1f00 4805 60")
    assert SparseLevelsCode().encode(one) == body
    assert same(SparseLevelsCode().decode(body), one)


@pytest.mark.parametrize("kind", ["smallest", *KINDS])
def test_random_values_come_back_whatever_the_positions(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(1, 400))
        value = draw(rng, n, int(rng.integers(1, n + 1)), int(rng.integers(1, 257)))
        assert same(SparseLevelsCode("bitmap").decode(check_round_trip(SparseLevelsCode(kind), value)), value)


@pytest.mark.parametrize("base", [1.001, 1.1, 2**0.25, 2.0, np.pi, 17.0])
def test_any_base_gives_the_receiver_the_senders_magnitudes(base: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        count = int(rng.integers(1, 12))
        value = draw(rng, 1000, 100, count, base)
        assert check_round_trip(SparseLevelsCode(), value)[3] == GEOMETRIC


def test_magnitudes_that_are_no_series_are_listed_and_keep_their_bits() -> None:
    wrong = SparseLevels(200, INDICES, NEGATIVE, BY_HAND.levels, floats(0.5, 0.3), 2.0)
    body = SparseLevelsCode().encode(wrong)
    assert body[3] == LISTED
    assert SparseLevelsCode().decode(body).dense().tobytes() == wrong.dense().tobytes()


def test_nothing_kept_takes_the_bytes_of_n_and_a_zero() -> None:
    nothing = SparseLevels(200, INDICES[:0], NEGATIVE[:0], BY_HAND.levels[:0], floats(0.5))
    assert SparseLevelsCode().encode(nothing).hex() == "c80100"
    found = SparseLevelsCode().decode(bytes.fromhex("c80100"), 200)
    assert (found.n, found.indices.size, found.magnitudes.size) == (200, 0, 0)
    assert not found.dense().any()


def test_delta_keys_are_written_if_they_are_requested() -> None:
    value = draw(np.random.default_rng(2), 10_000, 100, 1)
    body = SparseLevelsCode("delta keys").encode(value)
    assert body[3 + 1 + 4 + 1] == DELTA  # behind n (2), k (1), form, count, magnitude
    assert len(body) > len(SparseLevelsCode().encode(value))


def test_a_body_of_equally_frequent_levels_is_within_a_percent_of_the_entropy() -> None:
    n, k = 1_000_000, 10_000
    body = SparseLevelsCode().encode(draw(np.random.default_rng(3), n, k, 4))
    assert 8 * len(body) <= 1.01 * (entropy_bits(n, k) + 2 * k)


def test_unknown_positions_and_too_many_magnitudes_are_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="'keys'; .* 'smallest', 'bounded', 'Golomb', 'bitmap', 'delta keys', 'gamma'"):
        SparseLevelsCode("keys")
    many = SparseLevels(200, INDICES, NEGATIVE, BY_HAND.levels, np.ones(257, np.float32))
    with pytest.raises(ValueError, match="257 .* 256"):
        SparseLevelsCode().encode(many)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("03 04 00 00 0000003f", "4 kept entries of 3 in 8 bytes"),
        ("c801 00 00", "1 bytes"),
        ("c801 04 00", "0 bytes .* 1"),
        ("c801 04 02 01 0000003f 0000803e", "form 2; 0 and 1"),
        ("c801 04 00 02 0000003f 0000803e", "8 bytes .* 12"),
        ("c801 04 00 01 0000003f 00000000 01", "finite and above 0"),
        ("c801 04 00 01 0000003f 000000bf 01", "finite and above 0"),
        ("c801 04 00 01 0000003f 0000807f 01", "finite and above 0"),
        ("c801 04 00 01 0000003f 0000c07f 01", "finite and above 0"),
        ("c801 04 01 01 0000003f 00000000000000", "11 bytes .* 12"),
        ("c801 04 01 01 0000003f 000000000000f03f 01", "base 1.0; .* 1"),
        ("c801 04 01 01 0000003f 00000000000000c0 01", "base -2.0; .* 1"),
        ("c801 04 01 01 0000003f 000000000000f07f 01", "base inf; .* 1"),
        ("c801 04 01 01 0000003f 000000000000f87f 01", "base nan; .* 1"),
        ("c801 04 01 ff 0000003f 0000000000000040 01", "finite and above 0"),
        ("c801 04 01 01 0000807f 0000000000000040 01", "finite and above 0"),
        ("c801 04 00 01 0000003f 0000803e 01 04 02 1f00 4805", "0 bytes .* 1"),
        ("c801 04 00 01 0000003f 0000803e 01 04 02 1f00 4805 61", "0x61"),
        ("c801 04 00 00 0000003f 01 04 02 1f00 4805 60 00", "1 bytes"),
        (BODY + "00", "1 bytes"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        SparseLevelsCode().decode(bytes.fromhex(body))
