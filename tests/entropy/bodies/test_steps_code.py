"""Codec 11: its size, and counts beyond 32 bits."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy import StepsCode
from fedcomp.errors import CorruptError
from fedcomp.quantized import MAX_STEPS, Steps
from tests.reference import entropy_bits

CODE, N = StepsCode(), 50_000


def steps(counts: list[int] | NDArray[np.integer], n: int = N) -> Steps:
    indices = np.sort(np.random.default_rng(1).choice(n, len(counts), replace=False))
    return Steps(n, indices, np.array(counts, np.int32))


@pytest.mark.parametrize("count", [1, -1, MAX_STEPS, -MAX_STEPS, 1 << 30])
def test_the_largest_counts_come_back(count: int) -> None:
    assert CODE.decode(CODE.encode(steps([count, -1])), N).counts.tolist() == [count, -1]


@pytest.mark.parametrize(("shift", "count", "fits"), [(30, 1, True), (29, 3, True), (30, 2, False), (255, 1, False)])
def test_a_count_of_more_than_31_bits_is_refused(shift: int, count: int, fits: bool) -> None:
    body = bytearray(CODE.encode(Steps(10, np.array([3, 4]), np.array([count, 1], np.int32))))
    assert body[2] == 0, "the shift"
    body[2] = shift
    if fits:
        assert CODE.decode(bytes(body), 10).counts.tolist() == [count << shift, 1 << shift]
    else:
        with pytest.raises(CorruptError, match="at most 31 bits"):
            CODE.decode(bytes(body), 10)


def test_counts_of_one_take_a_bit_beside_their_positions() -> None:
    rng = np.random.default_rng(0)
    for shift in (0, 17):
        body = CODE.encode(steps(rng.choice([-1, 1], 2000) << shift))
        assert 8 * len(body) < 1.02 * entropy_bits(N, 2000) + 100


def test_sums_of_signs_take_about_their_entropy() -> None:
    """Sums of ten signs, which are what many deltas in a row leave: a quarter of a bit more than the entropy of an entry."""
    counts = np.random.default_rng(0).choice([-1, 1], (20_000, 10)).sum(axis=1)
    counts = counts[counts != 0]
    shares = np.unique(counts, return_counts=True)[1] / counts.size
    positions = entropy_bits(N, counts.size) - counts.size
    ideal = positions - counts.size * float(shares @ np.log2(shares))
    assert 8 * len(CODE.encode(steps(counts))) < ideal + 0.25 * counts.size
