"""Kept entries with values: a body by hand, back and forth, its size, and damage."""

import numpy as np
import pytest

from fedcomp.entropy import MAX_ENTRIES, SparseValues
from fedcomp.errors import FedcompError
from fedcomp.quantized import Sparse, round_to
from tests.entropy.laws import check_round_trip, same
from tests.reference import entropy_bits, sparse_entries

BY_HAND = Sparse(200, np.array([4, 13, 14, 100]), np.array([1.5, -0.75, -1.25, 3], np.float32))
BODY = "c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040"


def draw(rng: np.random.Generator, n: int, k: int, precision: str = "fp32") -> Sparse:
    indices = np.sort(rng.choice(n, k, replace=False)).astype(np.int64)
    values = (rng.standard_normal(k) * 10.0 ** rng.integers(-44, 38)).astype(np.float32)
    return Sparse(n, indices, round_to(values, precision))


def test_the_body_is_the_one_written_by_hand() -> None:
    assert SparseValues().encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(SparseValues().decode(bytes.fromhex(BODY), 200), BY_HAND)
    assert sparse_entries(bytes.fromhex(BODY)) == (200, {4: 1.5, 13: -0.75, 14: -1.25, 100: 3})


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_random_values_come_back_to_the_bit(precision: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(80):
        n = int(rng.integers(1, 400))
        value = draw(rng, n, int(rng.integers(0, n + 1)), precision)
        check_round_trip(SparseValues(), value)
    check_round_trip(SparseValues(), draw(rng, 300_000, 70_000, precision))


def test_nothing_kept_takes_the_bytes_of_n_and_a_zero() -> None:
    nothing = Sparse(200, np.empty(0, np.int64), np.empty(0, np.float32))
    assert SparseValues().encode(nothing).hex() == "c80100"
    assert same(SparseValues().decode(bytes.fromhex("c80100")), nothing)


def test_an_independent_decoder_finds_the_same_entries() -> None:
    rng = np.random.default_rng(1)
    for n, k, precision in ((50, 50, "fp32"), (3000, 700, "bf16"), (100_000, 1500, "fp16")):
        value = draw(rng, n, k, precision)
        expected = dict(zip(value.indices.tolist(), value.values.tolist(), strict=True))
        assert sparse_entries(SparseValues().encode(value)) == (n, expected)


@pytest.mark.parametrize(("precision", "bits"), [("fp32", 32), ("fp16", 16), ("bf16", 16)])
def test_a_body_is_within_a_percent_of_values_and_the_entropy_of_positions(precision: str, bits: int) -> None:
    n, k = 1_000_000, 10_000
    rng = np.random.default_rng(2)
    values = round_to(rng.standard_normal(k).astype(np.float32), precision)
    body = SparseValues().encode(Sparse(n, draw(rng, n, k).indices, values))
    assert 8 * len(body) <= 1.01 * (entropy_bits(n, k) - k + bits * k)


def test_a_vector_too_long_to_encode_is_refused() -> None:
    with pytest.raises(ValueError, match="2147483649 entries; .* 2147483648"):
        SparseValues().encode(Sparse(MAX_ENTRIES + 1, np.array([0]), np.ones(1, np.float32)))


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("03 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "4 kept entries of 3 in 18 bytes"),
        ("8180808008 04 00", "2147483649 entries; .* 2147483648"),
        ("c801 00 00", "1 bytes"),
        ("c801 04 05 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "kind 5; 0 to 4"),
        ("64 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "100 in a vector of 100"),
        ("c801 04 01 04 02 1f00 4805", "0 bytes .* 1"),
        ("c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 80ff", "NaN or infinity"),
        ("c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040 00", "1 bytes"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        SparseValues().decode(bytes.fromhex(body))
