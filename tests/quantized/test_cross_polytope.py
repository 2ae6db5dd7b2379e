"""Groups of a chunk, and vertices rotated back as a slow reader of the format finds them."""

import numpy as np
import pytest

from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.entropy import CrossPolytopeCode
from fedcomp.quantize import NearestVertex
from fedcomp.quantized import (
    MAX_GAIN,
    MAX_LENGTH,
    MAX_RATE,
    CrossPolytope,
    Rotation,
    chunk_bits,
    count_symbols,
    group_sizes,
    symbol_bits,
)
from tests.quantized.laws import check_adding
from tests.reference import cross_polytope_entries


def random_vertices(n: int, chunk: int, rate: int) -> CrossPolytope:
    """Return random symbols and scales, with rates around `rate`."""
    rng = np.random.default_rng([n, rate])
    rotation = Rotation(7, n, chunk)
    chunks = rotation.num_chunks
    rates = np.clip(rate + rng.integers(-20, 21, chunks), 0, MAX_RATE).astype(np.uint8)
    scales = (rng.lognormal(0, 1, chunks) * (rng.random(chunks) < 0.8)).astype(np.float32)
    scales.view(np.uint32)[:] &= np.uint32(0xFFFF0000)
    counts = count_symbols(rotation, rates, scales)
    symbols = [rng.integers(0, 1 << symbol_bits(size), count) for size, count in counts.items()]
    return CrossPolytope(rotation, rates, scales, np.concatenate([*symbols, []]).astype(np.uint16))


@pytest.mark.sample(25)
@pytest.mark.parametrize("rate", [0, 5, 16, 40, 100, 223, 224])
@pytest.mark.parametrize(
    ("n", "chunk"), [(1, 1024), (2, 1024), (3, 1024), (31, 2048), (1000, 1024), (5001, 1024), (70_077, 4096)]
)
def test_entries_are_those_of_a_slow_reader_to_the_bit(n: int, chunk: int, rate: int) -> None:
    value = random_vertices(n, chunk, rate)
    assert value.dense().tobytes() == cross_polytope_entries(CrossPolytopeCode().encode(value)).tobytes()
    check_adding(value)


@pytest.mark.parametrize("d", [1 << power for power in range(16)])
def test_groups_fill_a_chunk(d: int) -> None:
    for rate in range(MAX_RATE + 1):
        (small, few), (large, many) = group_sizes(d, rate)
        assert small * few + large * many == d
        assert small == min(2 << rate // 16, d)
        assert large == min(2 * small, d)
        if d >= 16 * large:
            assert small * few == d * (16 - rate % 16) / 16


def test_a_sum_of_all_signs_of_a_chunk_fits_its_integers() -> None:
    """Groups of two that all keep the first place with a plus have the largest sum, half of the chunk."""
    d, symbols = MAX_LENGTH, np.zeros(MAX_LENGTH // 2, np.uint16)
    value = CrossPolytope(Rotation(0, d, d), np.array([0], np.uint8), np.ones(1, np.float32), symbols)
    assert np.abs(value.dense()).max() <= MAX_GAIN
    assert value.dense().tobytes() == cross_polytope_entries(CrossPolytopeCode().encode(value)).tobytes()


def test_the_bits_of_a_chunk_fall_from_rate_to_rate() -> None:
    bits = chunk_bits(MAX_LENGTH) / MAX_LENGTH
    assert bits[[0, 16, 32, 48, 224]].tolist() == [1, 0.75, 0.5, 5 / 16, 16 / 2**15]
    assert (np.diff(bits[:160]) < 0).all()
    assert (np.diff(bits) <= 0).all()


@pytest.mark.parametrize("bits", [0.5, 0.1, 0.03])
@pytest.mark.parametrize("tensors", [(1,), (1, 8, 1, 1), (3, 0, 1, 20)])
def test_the_expected_error_is_the_error_of_gaussian_chunks(bits: float, tensors: tuple[float, ...]) -> None:
    size = (1 << 17) // len(tensors)
    vector = np.random.default_rng(2).standard_normal(1 << 17, np.float32) * np.repeat(
        np.array(tensors, np.float32), size
    )
    expected, found = [], []
    for seed in range(4):
        quantized = NearestVertex(bits).quantize(CompensatedUpdate(vector, context=EncodeContext(seed)))
        error = quantized.dense() - vector.astype(np.float64)
        expected.append(quantized.expected_noise())
        found.append((vector.astype(np.float64) @ vector, error @ error))
    np.testing.assert_allclose(np.mean(expected, 0), np.mean(found, 0), rtol=0.05)


def test_the_expected_error_of_zeros_is_none() -> None:
    zeros = CompensatedUpdate(np.zeros(5000, np.float32))
    assert NearestVertex(0.3).quantize(zeros).expected_noise() == (0, 0)
