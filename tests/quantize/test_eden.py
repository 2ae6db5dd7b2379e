"""Random rotation and few bits: by hand, and the errors derived in the papers, on vectors of many kinds."""

import math

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import Eden
from fedcomp.quantized import MAX_CHUNK, Rotated
from tests.quantize.laws import squared_bias
from tests.reference import coins, random_words

N = 3 * MAX_CHUNK + 5000
SMALL = 20_480
DISTORTION = {1: 1 - 2 / math.pi, 2: 0.117482, 3: 0.034548, 4: 0.009501}  # of the best levels for N(0, 1)


def encoded(value: Vector, bits: float, scale: str = "unbiased", seed: int = 0) -> Rotated:
    return Eden(bits, scale).quantize(CompensatedUpdate(value, context=EncodeContext(seed)))


def vector(kind: str, n: int) -> Vector:
    rng = np.random.default_rng(1)
    value = rng.standard_normal(n)
    if kind == "lognormal":
        value = np.sign(value) * rng.lognormal(
            0, 0.75, n
        )  # heavier tails: few entries make up a chunk, a bias of percents
    elif kind == "sparse":
        value *= rng.random(n) < 0.1
    elif kind == "ramp":
        value = np.arange(n) / n
    return value.astype(np.float32)


def error(found: Vector, value: Vector) -> float:
    """Return |found - value|^2 / |value|^2."""
    whole = value.astype(np.float64)
    return float(((found - whole) ** 2).sum() / (whole**2).sum())


def expected_error(bits: float) -> float:
    """Return the error of the unbiased scale: 1 / (1 - D) - 1, D the levels' own; n / k times 1 / (1 - D) below one bit."""
    if bits < 1:
        return 1 / (bits * (1 - DISTORTION[1])) - 1
    low, part = math.floor(bits), bits % 1
    explained = 1 - DISTORTION[low]
    return 1 / (explained + (part * (DISTORTION[low] - DISTORTION[low + 1]) if part else 0)) - 1


def test_two_entries_by_hand() -> None:
    # (3, 1) with the signs of the seed, in the order of the seed; then sums: |r| = 4 and 2; |x|^2 / |r|_1 = 10 / 6
    value = np.array([3, 1], np.float32)
    signed = np.roll(np.where(coins(5, 2), -value, value), int(random_words(5, 3, 1)[0]) % 2)
    rotated = np.array([[1, 1], [1, -1]]) @ signed
    quantized = encoded(value, 1, seed=5)
    assert quantized.levels.tolist() == (rotated > 0).astype(int).tolist()
    assert quantized.scales.tolist() == [np.float32(10 / 6)]
    assert encoded(value, 1, "minimal", seed=5).scales.tolist() == [np.float32(6 / 4)]
    assert np.allclose(quantized.dense(), [10 / 3, 0], atol=1e-6)  # H of two equal signs: one entry takes it all


def test_the_only_entry_of_a_chunk_that_is_not_zero_comes_back_exactly() -> None:
    for place in (0, 1, MAX_CHUNK - 1):
        value = np.zeros(MAX_CHUNK, np.float32)
        value[place] = -1.5
        for scale in ("unbiased", "minimal"):
            assert np.array_equal(encoded(value, 1, scale).dense(), value)


@pytest.mark.parametrize("kind", ["Gaussian", "lognormal", "sparse", "ramp"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 1.5, 2.25, 3.7])
def test_the_error_is_that_of_normal_entries_for_every_vector(kind: str, bits: float) -> None:
    value, expected = vector(kind, N), expected_error(bits)
    assert expected_error(1) == pytest.approx(math.pi / 2 - 1, abs=1e-9)
    assert error(encoded(value, bits).dense(), value) == pytest.approx(expected, abs=0.01 * max(expected, 0.02) / 0.571)


@pytest.mark.parametrize("kind", ["Gaussian", "lognormal", "sparse", "ramp"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_minimal_scale_leaves_the_distortion_of_the_levels(kind: str, bits: int) -> None:
    value, expected = vector(kind, N), DISTORTION[bits]
    assert error(encoded(value, bits, "minimal").dense(), value) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("bits", [0.5, 0.1, 0.01])
def test_less_than_a_bit_has_the_error_of_the_subset_as_well(bits: float) -> None:
    # The subset's own squared norm varies by sqrt(2 / k), and less for its being drawn without replacement: 4 of those.
    value = vector("Gaussian", N)
    quantized = encoded(value, bits)
    assert quantized.rotation.n == round(float(np.float32(bits)) * N)
    spread = 4 * math.sqrt(2 / quantized.rotation.n) / bits * math.pi / 2
    assert error(quantized.dense(), value) == pytest.approx(expected_error(bits), abs=spread)
    # With the minimal scale, what is not drawn is lost, and of what is, the distortion.
    minimal = error(encoded(value, bits, "minimal").dense(), value)
    assert minimal == pytest.approx(1 - bits * (1 - DISTORTION[1]), abs=spread * bits)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("bits", "kind"),
    [(1, "Gaussian"), (1, "lognormal"), (1, "sparse"), (2, "lognormal"), (1.5, "sparse"), (0.5, "Gaussian")],
)
def test_errors_of_two_hundred_seeds_cancel(bits: float, kind: str) -> None:
    value = vector(kind, SMALL)
    mean = np.zeros(value.size)
    for seed in range(200):
        encoded(value, bits, seed=seed).add_to(mean, 1 / 200)
    assert error(mean.astype(np.float32), value) == pytest.approx(expected_error(bits) / 200, rel=0.1)


@pytest.mark.parametrize(("bits", "vector_seed"), [(1, 0), (2, 1), (1.5, 2)])
def test_the_last_entries_of_a_vector_of_odd_length_are_unbiased(bits: float, vector_seed: int) -> None:
    # 7850 entries, the logistic regression's: its powers of two end in 8 and 2
    value = np.random.default_rng(vector_seed).standard_normal(7850).astype(np.float32)
    found = np.array([encoded(value, bits, seed=seed).dense()[-12:] for seed in range(100)], np.float64)
    standard_error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - value[-12:]) < 4 * standard_error).all()


def heavy_tailed(kind: str, n: int) -> Vector:
    rng = np.random.default_rng(1)
    if kind == "sparse":
        value = np.where(rng.permutation(n) < round(0.0002 * n), rng.standard_normal(n), 0)
    elif kind == "lognormal":
        value = rng.choice([-1, 1], n) * rng.lognormal(0, 2, n)
    else:
        value = rng.standard_t(2, n)
    return value.astype(np.float32)


def dominated(n: int) -> Vector:
    """Return a vector with an entry 1, and others of the norm 0.2."""
    value = np.random.default_rng(0).standard_normal(n)
    value[0] = 0
    value *= 0.2 / np.linalg.norm(value)
    value[0] = 1
    return value.astype(np.float32)


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [65_536, 102_538])
@pytest.mark.parametrize(("kind", "most"), [("sparse", 0.008), ("lognormal", 0.0015), ("Student t", 0.0005)])
def test_heavy_tailed_vectors_have_little_bias(kind: str, most: float, n: int) -> None:
    """One Hadamard matrix of the whole vector, as in the papers, leaves 0.003, 0.0002 and 0.00003 of the squared norm for
    65,536 entries; chunks of 4096 leave 0.2, 0.03 and 0.006.
    """
    assert abs(squared_bias(Eden(1), heavy_tailed(kind, n), 120)) < most


@pytest.mark.parametrize(("bits", "expected"), [(1, 0.040), (2, 0.045), (3, 0.001), (4, 0.0)])
def test_one_entry_that_dominates_leaves_a_bias_at_any_length(bits: float, expected: float) -> None:
    """The others have the squared norm 0.04: one bit loses them, and two bits double them, in the mean."""
    value = dominated(MAX_CHUNK)
    assert squared_bias(Eden(bits), value, 40) == pytest.approx(expected, abs=0.003)
    others = value[1:].astype(np.float64)
    mean = np.zeros(value.size)
    for seed in range(20):
        encoded(value, bits, seed=seed).add_to(mean, 1 / 20)
    shares = {1: 0.0, 2: 2.06, 3: 1.19, 4: 1.0}
    assert float(mean[1:] @ others) / float(others @ others) == pytest.approx(shares[int(bits)], abs=0.03)


def test_the_minimal_scale_is_biased_and_the_unbiased_one_is_not() -> None:
    value = vector("Gaussian", SMALL)
    for scale, share in (("unbiased", 1.0), ("minimal", 2 / math.pi)):
        mean = np.zeros(value.size)
        for seed in range(20):
            encoded(value, 1, scale, seed).add_to(mean, 1 / 20)
        # Of each encoding <found, x> / |x|^2 is exactly 1, or close to 2 / pi.
        found = float(mean @ value) / float(value.astype(float) @ value)
        assert found == pytest.approx(share, abs=1e-4 if share == 1 else 0.01)


@pytest.mark.parametrize("bits", [0.3, 1, 1.5, 2, 3.2, 4])
@pytest.mark.parametrize("n", [1, 2, 31, 1000, MAX_CHUNK + 3])
@pytest.mark.parametrize("scale", ["unbiased", "minimal"])
def test_zeros_are_sent_as_scales_of_zero(bits: float, n: int, scale: str) -> None:
    quantized = encoded(np.zeros(n, np.float32), bits, scale)
    assert not quantized.scales.any()
    assert not quantized.dense().any()


@pytest.mark.parametrize("bits", [1, 2.5, 4])
@pytest.mark.parametrize("exponent", [-126, -100, -60, 60, 100, 116])
def test_the_error_is_the_same_at_every_magnitude(bits: float, exponent: int) -> None:
    value = vector("Gaussian", 8192)
    quantized = encoded(value, bits)
    shifted = encoded(np.ldexp(value, exponent), bits)
    assert np.array_equal(shifted.levels, quantized.levels)
    assert np.allclose(np.ldexp(shifted.scales.astype(np.float64), -exponent), quantized.scales, rtol=1e-5)


@pytest.mark.parametrize("bits", [1, 2, 3.5])
def test_denormals_keep_their_error(bits: float) -> None:
    steps = np.random.default_rng(0).integers(-900, 901, 16_384)
    value = (steps * 2.0**-149).astype(np.float32)
    assert error(encoded(value, bits).dense() / np.float32(2.0**-149), steps.astype(np.float32)) < 1.1 * expected_error(
        bits
    )


@pytest.mark.parametrize("bits", [0.1, 1, 2, 3.5])
@pytest.mark.parametrize("scale", ["unbiased", "minimal"])
def test_huge_entries_and_their_residuals_stay_within_float32(bits: float, scale: str) -> None:
    rng = np.random.default_rng(0)
    for peak in (1e36, 1e38, 3.2e38, MAX_FLOAT32):
        value = (rng.choice([-1.0, 1.0], 5000) * rng.choice([0.5, 1], 5000) * peak).astype(np.float32)
        found = encoded(value, bits, scale).dense()
        assert np.isfinite(found).all()
        assert np.isfinite(value - found).all()


def test_one_huge_entry_does_not_touch_the_other_chunks() -> None:
    value = vector("Gaussian", 3 * MAX_CHUNK)
    apart = value.copy()
    apart[5] = 1e30
    before, after = encoded(value, 2).dense(), encoded(apart, 2).dense()
    assert np.allclose(before[MAX_CHUNK:], after[MAX_CHUNK:], rtol=1e-5, atol=1e-5)
    assert after[5] == pytest.approx(1e30, rel=0.2)


@pytest.mark.parametrize("bits", [0.2, 1, 2.5])
def test_only_the_seed_and_the_sum_decide(bits: float) -> None:
    value = vector("lognormal", MAX_CHUNK + 5001)
    quantized = encoded(value, bits, seed=3)
    halves = CompensatedUpdate(value / 2, value / 2, context=EncodeContext(3))
    for again in (encoded(value, bits, seed=3 + 2**64), Eden(bits).quantize(halves)):
        assert again.levels.tobytes() == quantized.levels.tobytes()
        assert again.scales.tobytes() == quantized.scales.tobytes()
        assert again.dense().tobytes() == quantized.dense().tobytes()
    assert encoded(value, bits, seed=4).levels.tobytes() != quantized.levels.tobytes()
    assert encoded(value, bits, seed=-1).seed == 2**64 - 1


@pytest.mark.parametrize("bits", [0.3, 1, 1.5, 2, 3.3, 4])
@pytest.mark.parametrize("n", [1 << 15, 40_000])
def test_the_expected_noise_is_that_of_gaussian_entries(bits: float, n: int) -> None:
    """Chunks of 2^15 entries, whose Hadamard matrix is scaled by the square root of 2, and of 2^12 and less."""
    vector = np.random.default_rng(3).standard_normal(n, np.float32)
    expected, found = [], []
    for seed in range(4):
        quantized = Eden(bits, "unbiased").quantize(CompensatedUpdate(vector, context=EncodeContext(seed)))
        error = quantized.dense() - vector.astype(np.float64)
        expected.append(quantized.expected_noise())
        found.append((vector.astype(np.float64) @ vector, error @ error))
    np.testing.assert_allclose(np.mean(expected, 0), np.mean(found, 0), rtol=0.03)
