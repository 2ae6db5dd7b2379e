"""The nearest vertices of rotated cross-polytopes: by hand, their error beside the bound of any code, bias, rates of blocks."""

import math

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.entropy import CrossPolytopeCode
from fedcomp.quantize import Eden, NearestVertex, Unbiased, errors
from fedcomp.quantized import CrossPolytope, count_symbols, group_sizes, symbol_bits
from tests.quantize.laws import squared_bias
from tests.quantize.test_eden import dominated, error, heavy_tailed, vector
from tests.reference import coins, random_words

BLOCK = 1 << 16
N = 3 * BLOCK + 5000
SMALL = 20_480


def encoded(value: Vector, bits: float, scale: str = "unbiased", seed: int = 0) -> CrossPolytope:
    return NearestVertex(bits, scale).quantize(CompensatedUpdate(value, context=EncodeContext(seed)))


def sent_bits(value: CrossPolytope) -> float:
    """Return the bits an entry: of symbols, rates and scales."""
    symbols = count_symbols(value.rotation, value.rates, value.scales)
    return (sum(symbol_bits(size) * count for size, count in symbols.items()) + 24 * value.rates.size) / value.n


def least_error(bits: float) -> float:
    """Return the least error of any unbiased code of Gaussian vectors: 1 / (1 - D) - 1 with D = 2^(-2 bits), by Shannon."""
    return 1 / (4**bits - 1)


def test_four_entries_by_hand() -> None:
    # (3, 1, -2, 0) with the signs and the shift of the seed; H, signs, H; the largest of the one group, and |x|^2 / that
    value, seed = np.array([3, 1, -2, 0], np.float32), 5
    h = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    signed = np.roll(np.where(coins(seed, 4), -value, value), int(random_words(seed, 3, 1)[0]) % 4)
    spread = signed[[0, 1, 0, 1]] + signed[[2, 3, 2, 3]] * [1, 1, -1, -1]  # the higher one of two bits
    rotated = h @ (np.where(coins(seed, 4, 5), -1, 1) * spread)
    place = int(np.abs(rotated).argmax())
    quantized = encoded(value, 0.1, seed=seed)
    assert quantized.symbols.tolist() == [2 * place + (rotated[place] < 0)]
    assert quantized.scales[0] == pytest.approx(14 / abs(rotated[place]) * 2, rel=2**-7)
    assert encoded(value, 0.1, "minimal", seed=seed).scales[0] == pytest.approx(abs(rotated[place]) / 8 * 2, rel=2**-8)


@pytest.mark.parametrize("scale", ["unbiased", "minimal"])
def test_a_vector_of_one_entry_comes_back(scale: str) -> None:
    assert encoded(np.array([-1.5], np.float32), 0.1, scale).dense().tolist() == [-1.5]


def test_scales_are_rounded_at_random_and_without_bias() -> None:
    value = np.array([1 + 0.75 / 128], np.float32)  # between two numbers of bfloat16, closer to the upper one
    found = [float(encoded(value, 0.1, seed=seed).dense()[0]) for seed in range(500)]
    assert set(found) == {1.0, 1 + 1 / 128}
    assert np.mean(found) == pytest.approx(float(value[0]), abs=4 * float(np.std(found)) / math.sqrt(500))
    assert encoded(value, 0.1, "minimal").dense().tolist() == [1 + 1 / 128]


@pytest.mark.parametrize("m", [2, 4, 8, 16, 32, 64, 128, 256])
def test_the_error_is_that_of_the_largest_of_m_normal_numbers(m: int) -> None:
    x = np.linspace(0, 12, 20_001)
    below = np.array([math.erf(each / math.sqrt(2)) for each in x])
    largest = float(np.trapezoid(1 - below**m, x))  # its mean, the integral of P(largest > x)
    for kind in ("Gaussian", "sparse"):
        value = vector(kind, N)
        quantized = encoded(value, (math.log2(m) + 1) / m)
        assert sent_bits(quantized) == pytest.approx((math.log2(m) + 1) / m, rel=0.01)
        assert error(quantized.dense(), value) == pytest.approx(m / largest**2 - 1, rel=0.08)


@pytest.mark.parametrize("bits", [0.5, 0.3, 0.2, 0.1, 0.05, 0.03])
def test_the_error_is_within_half_of_the_least_that_is_possible(bits: float) -> None:
    value = vector("Gaussian", N)
    quantized = encoded(value, bits)
    sent = sent_bits(quantized)
    assert 0.98 * bits < sent <= bits
    assert error(quantized.dense(), value) < (1.5 if bits <= 0.3 else 1.55) * least_error(sent)
    eden = Eden(sent).quantize(CompensatedUpdate(value, context=EncodeContext(0)))
    assert error(quantized.dense(), value) < 0.75 * error(eden.dense(), value)


@pytest.mark.parametrize("bits", [0.5, 0.1])
def test_the_minimal_scale_leaves_the_least_error(bits: float) -> None:
    value = vector("Gaussian", N)
    variance = error(encoded(value, bits).dense(), value)
    quantized = encoded(value, bits, "minimal")
    assert error(quantized.dense(), value) == pytest.approx(variance / (1 + variance), rel=0.01)
    for factor in (0.9, 1.1):
        assert error(quantized.dense() * np.float32(factor), value) > error(quantized.dense(), value)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("bits", "kind"), [(0.5, "Gaussian"), (0.3, "lognormal"), (0.1, "sparse"), (0.03, "ramp")])
def test_errors_of_two_hundred_seeds_cancel(bits: float, kind: str) -> None:
    value = vector(kind, SMALL)
    each, of_mean = errors(NearestVertex(bits), value, 200)
    assert of_mean == pytest.approx(float(each.mean()) / 200, rel=0.1)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "most"), [("sparse", 0.002), ("lognormal", 0.005), ("Student t", 0.002)])
def test_heavy_tailed_vectors_have_little_bias(kind: str, most: float) -> None:
    """Without `spread`, the squared bias of the lognormal vector would be 0.3 of its squared norm."""
    assert abs(squared_bias(NearestVertex(0.3), heavy_tailed(kind, BLOCK), 100)) < most


def test_one_entry_that_dominates_leaves_a_bias_at_any_length() -> None:
    assert squared_bias(NearestVertex(0.3), dominated(BLOCK), 40) == pytest.approx(0.029, abs=0.005)


def test_chunks_get_bits_in_proportion_to_their_norms() -> None:
    value = vector("Gaussian", 1 << 18)
    norms = np.repeat([1, 2, 4, 4], BLOCK).astype(np.float32)
    quantized = encoded(value * norms, 0.1)
    assert quantized.rotation.chunk == 1 << 15
    found = [sum(symbol_bits(size) * count for size, count in group_sizes(1 << 15, rate)) for rate in quantized.rates]
    assert np.array(found) / (1 << 15) == pytest.approx(0.1 * np.repeat([1, 2, 4, 4], 2) / 2.75, rel=0.05)
    assert error(quantized.dense(), value * norms) < 0.87 * error(encoded(value, 0.1).dense(), value)


def test_chunks_are_small_where_the_norm_is_in_few_places() -> None:
    value = vector("Gaussian", 1 << 17)
    for run, chunk, gain in ((1 << 10, 1 << 10, 0.4), (1 << 13, 1 << 13, 0.5)):
        tensors = np.where(np.arange(value.size) % (8 * run) < run, 8, 1).astype(np.float32)
        quantized = encoded(value * tensors, 0.3)
        assert quantized.rotation.chunk == chunk
        assert sent_bits(quantized) == pytest.approx(0.3, rel=0.02)
        assert error(quantized.dense(), value * tensors) < gain * error(encoded(value, 0.3).dense(), value)


def test_a_vector_of_two_chunks_may_have_small_ones_too() -> None:
    """A shorter one is all rest, which every length cuts alike."""
    value = vector("Gaussian", 1 << 11) * np.where(np.arange(1 << 11) < 1 << 10, 8, 1).astype(np.float32)
    assert encoded(value, 0.3).rotation.chunk == 1 << 10
    assert encoded(value[:-1], 0.3).rotation.chunk == 1 << 15


def test_the_rates_and_scales_of_chunks_count_when_their_length_is_chosen() -> None:
    """At 0.03 bits, those of chunks of 2^10 would take 0.023."""
    value = vector("Gaussian", 1 << 17)
    tensors = np.where(np.arange(value.size) % (1 << 13) < 1 << 10, 8, 1).astype(np.float32)
    assert encoded(value * tensors, 0.3).rotation.chunk == 1 << 10
    quantized = encoded(value * tensors, 0.03)
    assert quantized.rotation.chunk > 1 << 10
    assert sent_bits(quantized) == pytest.approx(0.03, rel=0.03)


def test_many_chunks_are_within_half_of_the_least_error_too() -> None:
    value = np.random.default_rng(3).standard_normal(40 << 15, np.float32)
    quantized = encoded(value, 0.25)
    assert error(quantized.dense(), value) < 1.49 * least_error(sent_bits(quantized))


def test_no_chunk_gets_more_than_a_bit() -> None:
    value = vector("Gaussian", 5 * BLOCK)
    value[:BLOCK] *= 1000
    quantized = encoded(value, 0.3)
    assert quantized.rates[0] == 0
    assert sent_bits(quantized) == pytest.approx(0.3, rel=0.02)


def test_a_chunk_of_zeros_takes_no_bits() -> None:
    value = vector("Gaussian", 4 * BLOCK)
    value[BLOCK : 2 * BLOCK] = 0
    quantized = encoded(value, 0.15)
    assert quantized.scales[2:4].tolist() == [0, 0]
    assert sent_bits(quantized) == pytest.approx(0.15, rel=0.02)
    assert not quantized.dense()[BLOCK : 2 * BLOCK].any()
    assert error(quantized.dense(), value) < 0.8 * error(encoded(value[2 * BLOCK :], 0.15).dense(), value[2 * BLOCK :])


@pytest.mark.parametrize("bits", [0.3, 0.03])
@pytest.mark.parametrize("n", [1000, 4392, 25_610, 102_538])
def test_a_vector_takes_no_more_than_its_bits_unless_its_chunks_need_them(n: int, bits: float) -> None:
    quantized = encoded(vector("lognormal", n), bits)
    least = sum(24 + int(d).bit_length() for d in quantized.rotation.chunk_sizes())
    assert n * sent_bits(quantized) <= max(bits * n, least)
    assert n * sent_bits(quantized) > 0.9 * bits * n


@pytest.mark.parametrize("n", [1, 31, 1000, BLOCK + 3, 3 * BLOCK])
def test_zeros_are_sent_as_scales_of_zero(n: int) -> None:
    quantized = encoded(np.zeros(n, np.float32), 0.3)
    assert not quantized.scales.any()
    assert not quantized.symbols.size
    assert not quantized.dense().any()


@pytest.mark.parametrize("exponent", [-126, -100, -60, 60, 100, 110])
def test_the_error_is_the_same_at_every_magnitude(exponent: int) -> None:
    value = vector("Gaussian", 2 * BLOCK)
    value[:BLOCK] *= 2
    quantized = encoded(value, 0.3)
    shifted = encoded(np.ldexp(value, exponent), 0.3)
    assert shifted.rates.tolist() == quantized.rates.tolist()
    if exponent > -126:  # below, entries are denormal and lose bits
        assert np.array_equal(shifted.symbols, quantized.symbols)
    assert np.allclose(np.ldexp(shifted.scales.astype(np.float64), -exponent), quantized.scales, rtol=2**-6)


@pytest.mark.parametrize("bits", [0.01, 0.3, 0.75])
@pytest.mark.parametrize("scale", ["unbiased", "minimal"])
def test_huge_entries_and_their_residuals_stay_within_float32_and_can_be_read(bits: float, scale: str) -> None:
    rng, code = np.random.default_rng(0), CrossPolytopeCode()
    for peak in (1e35, 1e36, 3.2e38, MAX_FLOAT32):
        for n in (1, 5000, 2 * BLOCK):
            value = (rng.choice([-1.0, 1.0], n) * rng.choice([0.5, 1], n) * peak).astype(np.float32)
            found = code.decode(code.encode(encoded(value, bits, scale)), n).dense()
            assert np.isfinite(found).all()
            with np.errstate(over="raise"):
                assert np.isfinite(value - found).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("others", [0, 1e-3, 0.1])
def test_one_large_entry_keeps_the_bound_and_leaves_the_others_as_they_are(others: float) -> None:
    value = vector("Gaussian", 1 << 12) * np.float32(others / 64)
    value[100] = 1
    quantized = NearestVertex(0.3)
    bound = quantized.error_bound(value.size)
    assert isinstance(bound, Unbiased)
    each, of_mean = errors(quantized, value, 200)
    assert each.mean() < 4 < bound.variance
    assert of_mean < each.mean() / 200 + 0.05


def test_only_the_seed_and_the_sum_decide() -> None:
    value = vector("lognormal", 2 * BLOCK + 5001)
    quantized = encoded(value, 0.2, seed=3)
    halves = CompensatedUpdate(value / 2, value / 2, context=EncodeContext(3))
    for again in (encoded(value, 0.2, seed=3 + 2**64), NearestVertex(0.2).quantize(halves)):
        assert again.symbols.tobytes() == quantized.symbols.tobytes()
        assert again.scales.tobytes() == quantized.scales.tobytes()
        assert again.rates.tobytes() == quantized.rates.tobytes()
    assert encoded(value, 0.2, seed=4).symbols.tobytes() != quantized.symbols.tobytes()
