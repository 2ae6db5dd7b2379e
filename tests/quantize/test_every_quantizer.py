"""Laws that every quantizer keeps: ends of float32, sums, seeds, devices, entries that are not finite, settings."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.errors import NonFiniteError
from fedcomp.quantize import (
    AboveMean,
    Cgx,
    ChunkedTopK,
    Eden,
    Identity,
    LloydMagnitudes,
    Logarithmic,
    LowRank,
    MagnitudeHierarchy,
    Natural,
    NaturalDithering,
    NearestVertex,
    OneBit,
    PerTensor,
    Qsgd,
    Quantizer,
    RegularizedTopK,
    RoundValues,
    ScheduledTopK,
    SeededSubset,
    Signs,
    TensorTopK,
    Ternarize,
    TernGrad,
    TopK,
    chain,
)
from fedcomp.quantized import Levels, Segments, group_count

OF_LEVELS: list[Quantizer[CompensatedUpdate, Any]] = [
    Qsgd(1, "l2", 1 << 20),
    Qsgd(7, "max", 512),
    Qsgd(255, "l2", 100),
    Natural(),
    NaturalDithering(1, "max", 7),
    NaturalDithering(8, "l2", 512),
    NaturalDithering(64, "max", 1000),
    TernGrad(0),
    TernGrad(2.5),
    TernGrad(2.5, "power"),
    TernGrad(0, shrunk=True),
    Signs(),
    Signs(0.01),
    OneBit(),
    Cgx(1, 512),
    Cgx(8, 1024),
    Cgx(4, 33, dense_below=0),
    Cgx(4, 512),
    Cgx(4, 512, adaptive=True),
]
OTHERS: list[Quantizer[CompensatedUpdate, Any]] = [
    Identity(),
    TopK(0.01),
    TensorTopK(0.01, 1),
    ScheduledTopK(TopK(0.01), 4),
    RegularizedTopK(0.01, 4.0),
    ChunkedTopK(0.05, 64),
    SeededSubset(0.1, True),
    RoundValues(TopK(0.1), "bf16"),
    RoundValues(TopK(0.1), "natural"),
    PerTensor(chain(TopK(0.1), Ternarize()), 1),
    PerTensor(chain(AboveMean(0.7), Ternarize())),
    Logarithmic(1.2, 6),
    Eden(0.2),
    Eden(1),
    Eden(2.5, "minimal"),
    NearestVertex(0.3),
    NearestVertex(0.02, "minimal"),
    LowRank(2),
]
RANDOM = (Qsgd, Natural, NaturalDithering, TernGrad, SeededSubset, Eden, NearestVertex, LowRank)
of_levels = pytest.mark.parametrize("quantizer", OF_LEVELS, ids=str)
quantizers = pytest.mark.parametrize("quantizer", OF_LEVELS + OTHERS, ids=str)
sizes = pytest.mark.parametrize("n", [1, 2, 31, 1000, 100_003])


def levels_of(quantized: Levels | Segments) -> list[Levels]:
    parts = quantized.pieces if isinstance(quantized, Segments) else (quantized,)
    return [part for part in parts if isinstance(part, Levels)]


def same(one: Levels | Segments, other: Levels | Segments) -> bool:
    ones, others = levels_of(one), levels_of(other)
    return one.dense().tobytes() == other.dense().tobytes() and all(
        np.array_equal(first.levels, second.levels) and first.scales.tobytes() == second.scales.tobytes()
        for first, second in zip(ones, others, strict=True)
    )


def cut(n: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of `n` entries: a matrix, a bias, a scalar, an empty tensor, and a matrix of what is left."""
    return ((n,),) if n < 1000 else ((2, n // 3), (5,), (), (0, 3), (1, n - 2 * (n // 3) - 6))


def ends(rng: np.random.Generator, n: int) -> dict[str, Vector]:
    one = np.zeros(n, np.float32)
    one[n // 2] = -0.75
    vectors: dict[str, NDArray[Any]] = {
        "zeros": np.zeros(n),
        "negative zeros": -np.zeros(n),
        "one": one,
        "one denormal": np.where(one, 2.0**-149, 0),
        "ties": rng.choice([-1, -0.5, 0, 0.5, 1], n),
        "denormals": rng.integers(-9, 10, n) * 2.0**-149,
        "the least": np.full(n, 2.0**-149),
        "around normal": rng.integers(-4, 5, n) * 2.0**-127,
        "huge": rng.choice([-1, 1], n) * rng.uniform(0.9, 1, n) * 3.2e38,
        "the largest": np.where(rng.random(n) < 0.5, MAX_FLOAT32, -MAX_FLOAT32),
        "large and small": np.where(rng.random(n) < 0.5, MAX_FLOAT32, rng.standard_normal(n)),
        "all large": rng.uniform(0.5, 1, n) * MAX_FLOAT32,
    }
    return {name: vector.astype(np.float32) for name, vector in vectors.items()}


@of_levels
@sizes
def test_levels_are_in_range_and_values_finite_at_the_ends_of_float32(
    quantizer: Quantizer[CompensatedUpdate, Any], n: int
) -> None:
    for vector in ends(np.random.default_rng(n), n).values():
        with np.errstate(all="raise", under="ignore"):
            quantized = quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(3, shapes=cut(n))))
            dense = quantized.dense()
        assert quantized.n == n
        assert dense.dtype == np.float32
        assert np.isfinite(dense).all()
        for part in levels_of(quantized):
            assert part.levels.dtype == (np.uint8 if part.scale.count <= 256 else np.uint16)
            assert part.levels.max() < part.scale.count
            assert part.scales.dtype == np.float32
            assert part.scales.size == group_count(part.n, part.groups)
            assert (part.scales >= 0).all()


@of_levels
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_decode_to_zeros(quantizer: Quantizer[CompensatedUpdate, Any], zero: float) -> None:
    quantized = quantizer.quantize(
        CompensatedUpdate(np.full(3000, zero, np.float32), context=EncodeContext(shapes=cut(3000)))
    )
    assert not quantized.dense().any()


@of_levels
def test_no_entry_changes_its_sign_except_with_cgx(quantizer: Quantizer[CompensatedUpdate, Any]) -> None:
    vector = np.random.default_rng(4).standard_normal(2 * BLOCK_ENTRIES, np.float32)
    dense = quantizer.quantize(CompensatedUpdate(vector)).dense()
    if not isinstance(quantizer, Cgx):
        assert (dense * vector >= 0).all()
    assert np.corrcoef(dense, vector)[0, 1] > 0.03


@quantizers
@pytest.mark.parametrize("n", [1, 1000, 2 * BLOCK_ENTRIES + 1])
def test_a_sum_is_quantized_as_its_vector_and_left_committed(
    quantizer: Quantizer[CompensatedUpdate, Any], n: int
) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.standard_normal((2, n), np.float32)
    context = EncodeContext(8, shapes=cut(n))
    whole = first + second
    expected = quantizer.quantize(CompensatedUpdate(whole, context=context))
    assert same(quantizer.quantize(CompensatedUpdate(first, second, context=context)), expected)
    committing = CompensatedUpdate(first, second, in_place=True, context=context)
    assert same(quantizer.quantize(committing), expected)
    assert np.array_equal(first, whole)
    assert committing.commit()[0] is first


@quantizers
def test_only_the_seed_decides_the_random_numbers(quantizer: Quantizer[CompensatedUpdate, Any]) -> None:
    vector = np.random.default_rng(0).standard_normal(10_000, np.float32)
    first, again, other = (
        quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(seed))) for seed in (1, 1, 2)
    )
    assert same(first, again)
    random = isinstance(quantizer, RANDOM) or "natural" in str(quantizer)
    assert same(first, other) != random


@quantizers
@pytest.mark.parametrize("n", [1, 1000, 3 * BLOCK_ENTRIES + 5])
def test_a_torch_tensor_is_quantized_as_the_array(quantizer: Quantizer[CompensatedUpdate, Any], n: int) -> None:
    torch: Any = pytest.importorskip("torch")
    vector = np.random.default_rng(n).standard_normal(n, np.float32)
    context = EncodeContext(5, shapes=cut(n))
    expected = quantizer.quantize(CompensatedUpdate(vector, context=context))
    assert same(quantizer.quantize(CompensatedUpdate(torch.from_numpy(vector.copy()), context=context)), expected)


@quantizers
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_entry_that_is_not_finite_is_refused_with_its_index(
    quantizer: Quantizer[CompensatedUpdate, Any], bad: float
) -> None:
    n = 3 * BLOCK_ENTRIES
    for place in (0, n // 2, n - 1):
        vector = np.ones(n, np.float32)
        vector[place] = bad
        with pytest.raises(NonFiniteError, match=f"^entry {place} is {bad}; only finite values can be encoded$"):
            quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(shapes=cut(n))))
        assert np.count_nonzero(vector == 1) == n - 1


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda: Qsgd(0, "max", 512), "levels is 0.* 1 to 255"),
        (lambda: Qsgd(256, "max", 512), "levels is 256.* 1 to 255"),
        (lambda: Qsgd(7, "l1", 512), "norm is 'l1'.* 'l2', 'max'"),
        (lambda: Qsgd(7, "max", 0), "bucket is 0.* 1 to 1048576"),
        (lambda: NaturalDithering(65, "max", 512), "levels is 65.* 1 to 64"),
        (lambda: NaturalDithering(8, "", 512), "norm is ''.* 'l2', 'max'"),
        (lambda: NaturalDithering(8, "l2", 2**21), "bucket is 2097152.* 1 to 1048576"),
        (lambda: TernGrad(-1), "clip is -1.* 0 .* 1000"),
        (lambda: Signs(0.0), "step is 0.0.* 1e-37 .* 1e.37"),
        (lambda: Cgx(9), "bits is 9.* 1 to 8"),
        (lambda: Cgx(4, 512.0), "bucket is 512.0.* 1 to 1048576"),  # type: ignore
        (lambda: Cgx(1, adaptive=True), "bits is 1.* 2 to 8"),
        (lambda: Cgx(tolerance=0), "tolerance is 0.* 0 .* 1e.06"),
        (lambda: Cgx(dense_below=-1), "dense_below is -1.* 0 to 2147483648"),
        (lambda: Cgx(adaptive=None), "adaptive is None.* True .* False"),  # type: ignore[arg-type]
        (lambda: Signs(1e-38), "1e-38"),
        (lambda: Signs(1, "plus"), "'plus'.*'zero', 'coin'"),
        (lambda: Eden(0), "bits is 0.* 4"),
        (lambda: Eden(4.5), "bits is 4.5.* 4"),
        (lambda: Eden(1, "best"), "'best'.*'unbiased', 'minimal'"),
        (lambda: LowRank(0), "rank is 0.* 1 to 128"),
        (lambda: LowRank(1.5), "rank is 1.5.* 1 to 128"),  # type: ignore[arg-type]
        (lambda: LowRank(129), "rank is 129.* 1 to 128"),
        (lambda: TopK(1.5), "density is 1.5.* 0 .* 1"),
        (lambda: TensorTopK(1.5), "density is 1.5.* 0 .* 1"),
        (lambda: SeededSubset(1.5, False), "density is 1.5.* 0 .* 1"),
        (lambda: ChunkedTopK(0, 4096), "density is 0.* 0 .* 1"),
        (lambda: ChunkedTopK(0.1, 0), "chunk is 0.* 1 to 1048576"),
        (lambda: ScheduledTopK(TopK(0.1), -1), "warmup is -1.* 0 to 1000000"),
        (lambda: ScheduledTopK(TopK(0.1), 4, 5), "warmup_steps is 5.* 1 to 4"),
        (lambda: TensorTopK(0.1, -1), "dense_below is -1"),
        (lambda: PerTensor(chain(TopK(0.1), Ternarize()), 0.5), "dense_below is 0.5"),  # type: ignore[arg-type]
        (lambda: RoundValues(TopK(1), "fp8"), "'fp8'.*'fp32', 'bf16', 'fp16', 'natural'"),
        (lambda: RegularizedTopK(0.1, -1), "mu is -1.* 0"),
        (lambda: MagnitudeHierarchy(0, 1), "levels is 0.* 1 to 16"),
        (lambda: MagnitudeHierarchy(4, 65), "top_levels is 65.* 1 to 64"),
        (lambda: LloydMagnitudes(2.0), "bits is 2.0.* 1 to 8"),  # type: ignore[arg-type]
        (lambda: Logarithmic(1, 4), "base is 1.* 1.001 .* 1024"),
        (lambda: Logarithmic(2, 0), "levels is 0.* 1 to 256"),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_by_its_name(make: Any, numbers: str) -> None:
    with pytest.raises(ValueError, match=numbers):
        make()
