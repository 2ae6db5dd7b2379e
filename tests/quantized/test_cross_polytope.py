"""Groups of a chunk, and vertices rotated back as a slow reader of the format finds them."""

import numpy as np
import pytest

from fedcomp.entropy import CrossPolytopeCode
from fedcomp.quantized import MAX_CHUNK, MAX_RATE, CrossPolytope, Rotation, count_symbols, group_sizes, rate_bits
from tests.quantized.laws import check_adding
from tests.reference import cross_polytope_entries


def random_vertices(n: int, rate: int) -> CrossPolytope:
    """Return random symbols and scales, with rates around `rate`."""
    rng = np.random.default_rng([n, rate])
    rotation = Rotation(7, n)
    rates = np.clip(rate + rng.integers(-20, 21, rotation.num_blocks), 0, MAX_RATE).astype(np.uint8)
    scales = (rng.lognormal(0, 1, rotation.num_chunks) * (rng.random(rotation.num_chunks) < 0.8)).astype(np.float32)
    symbols = [rng.integers(0, 1 << width, count) for width, count in count_symbols(rotation, rates, scales)]
    return CrossPolytope(rotation, rates, scales, np.concatenate([*symbols, []]).astype(np.uint16))


@pytest.mark.parametrize("rate", [0, 5, 16, 40, 100, 207, 208])
@pytest.mark.parametrize("n", [1, 2, 3, 31, 1000, 5001, 2 * MAX_CHUNK + 77])
def test_entries_are_those_of_a_slow_reader_to_the_bit(n: int, rate: int) -> None:
    value = random_vertices(n, rate)
    assert value.dense().tobytes() == cross_polytope_entries(CrossPolytopeCode().encode(value)).tobytes()
    check_adding(value)


@pytest.mark.parametrize("d", [1 << power for power in range(17)])
def test_groups_fill_a_chunk(d: int) -> None:
    for rate in range(MAX_RATE + 1):
        (small, few), (large, many) = group_sizes(d, rate)
        assert small * few + large * many == d
        assert small == min(4 << rate // 16, d)
        assert large == min(2 * small, d)
        if d >= 16 * large:
            assert small * few == d * (16 - rate % 16) / 16


def test_a_sum_of_all_signs_of_a_chunk_fits_its_integers() -> None:
    """A row of the matrix is the largest sum that groups of four can have, a quarter of the chunk."""
    d = MAX_CHUNK
    value = CrossPolytope(Rotation(0, d), np.array([0], np.uint8), np.ones(1, np.float32), np.zeros(d // 4, np.uint16))
    assert np.abs(value.dense()).max() == d // 4 / 256


def test_rates_fall_step_by_step() -> None:
    bits = rate_bits()
    assert bits[[0, 16, 32, 208]].tolist() == [0.75, 0.5, 5 / 16, 16 / 2**15]
    assert (np.diff(bits) < 0).all()
    assert (bits[1:] / bits[:-1] > 0.94).all()
