"""Values at positions that are drawn from a seed: a body by hand, back and forth, and damage."""

import numpy as np
import pytest

from fedcomp.entropy import MAX_ENTRIES, SeededValues
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import FedcompError
from fedcomp.quantized import Seeded, round_to, seeded_indices
from tests.entropy.laws import check_round_trip, memory_below, same

VALUES = np.array([1.5, -0.75, -1.25, 3], np.float32)
BY_HAND = Seeded(200, 77, np.array([27, 95, 107, 185]), VALUES)
BODY = "c801 04 4d00000000000000 01 c03f 40bf a0bf 4040"


def draw(rng: np.random.Generator, n: int, k: int, precision: str = "fp32") -> Seeded:
    seed = int(rng.integers(2**63))
    return Seeded(n, seed, seeded_indices(n, k, seed), round_to(rng.standard_normal(k).astype(np.float32), precision))


def test_the_body_is_the_one_written_by_hand() -> None:
    assert SeededValues().encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(SeededValues().decode(bytes.fromhex(BODY), 200), BY_HAND)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_random_values_come_back_to_the_bit(precision: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(80):
        n = int(rng.integers(1, 400))
        value = draw(rng, n, int(rng.integers(1, n + 1)), precision)
        check_round_trip(SeededValues(), value)


def test_positions_take_the_eight_bytes_of_the_seed_whatever_their_number() -> None:
    rng = np.random.default_rng(1)
    for k in (1, 100, 20_000):
        value = draw(rng, 1_000_000, k)
        assert len(SeededValues().encode(value)) == 3 + len(write_varint(k)) + 8 + 1 + 4 * k


def test_any_seed_is_written_modulo_2_to_the_64() -> None:
    for seed in (-1, 2**64 + 3, 2**200):
        value = Seeded(50, seed, seeded_indices(50, 4, seed), VALUES)
        found = SeededValues().decode(SeededValues().encode(value))
        assert found.seed == seed % 2**64
        assert np.array_equal(found.dense(), value.dense())


def test_nothing_kept_takes_the_bytes_of_n_and_a_zero() -> None:
    nothing = Seeded(200, 0, BY_HAND.indices[:0], VALUES[:0])
    assert SeededValues().encode(nothing).hex() == "c80100"
    assert same(SeededValues().decode(bytes.fromhex("c80100"), 200), nothing)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("03 04 4d00000000000000 01 c03f 40bf a0bf 4040", "4 kept entries of 3 in 19 bytes"),
        ("c801 00 00", "1 bytes"),
        ("c801 04 4d000000000000", "7 bytes .* 8"),
        ("c801 04 4d00000000000000", "0 bytes .* 1"),
        ("c801 04 4d00000000000000 01 c03f 40bf a0bf 40", "7 bytes .* 8"),
        ("c801 04 4d00000000000000 01 c03f 40bf a0bf 80ff", "NaN or infinity"),
        (BODY + "00", "1 bytes"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        SeededValues().decode(bytes.fromhex(body))


def test_a_few_values_of_a_huge_vector_take_little_memory() -> None:
    body = SeededValues().encode(Seeded(MAX_ENTRIES, 1, seeded_indices(MAX_ENTRIES, 4, 1), VALUES))
    with memory_below(200_000):
        SeededValues().decode(body, MAX_ENTRIES)
