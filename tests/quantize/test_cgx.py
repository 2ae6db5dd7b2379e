"""CGX: the levels of a bucket by hand, nearest levels, dense tensors, and the bits of each layer."""

import itertools

import numpy as np
import pytest

import fedcomp
from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Shapes, Vector
from fedcomp.quantize import Cgx, Unbiased
from fedcomp.quantize.cgx import allocate, least_tolerance, rounding_error
from fedcomp.quantized import LINEAR, Dense, Levels, Segments
from tests.quantize.laws import check_at_most, check_mean

SHAPES: Shapes = ((64, 32), (64,), (), (0, 5), (31, 33), (5000,), (16, 64), (3, 3, 1000))
"""Rounded, bias, scalar, empty, one entry too few, long but of one dimension, exactly 1024 entries, rounded."""
N = 2048 + 64 + 1 + 1023 + 5000 + 1024 + 9000


def encode(quantizer: Cgx, value: Vector, shapes: Shapes) -> Segments:
    return quantizer.quantize(CompensatedUpdate(value, context=EncodeContext(shapes=shapes)))


def layout(pieces: Segments) -> list[tuple[str, int]]:
    return [
        (f"{piece.scale.count} levels" if isinstance(piece, Levels) else "dense", piece.n) for piece in pieces.pieces
    ]


def one_layer(bits: int, bucket: int, value: Vector) -> Levels:
    """Return the levels of a vector whose tensors are not known."""
    (levels,) = encode(Cgx(bits, bucket), value, ()).pieces
    assert isinstance(levels, Levels)
    return levels


def test_levels_run_from_the_least_to_the_largest_of_the_bucket() -> None:
    # u = (5 + 1) / 3 = 2: levels -1, 1, 3, 5; 0.1 is nearest to 1, and 4 as near to 3 as to 5: up
    value = np.array([-1, 0.1, 4, 5, 3.9, 7, 7, 7, 7, 7, -2], np.float32)
    found = one_layer(2, 5, value)
    assert found.levels[:5].tolist() == [0, 1, 3, 3, 2]
    assert found.offsets is not None
    assert found.offsets.tolist() == [2, 7, -2]
    assert found.scales.tolist() == [3, 0, 0]
    assert (found.scale.kind, found.scale.count, found.groups) == (LINEAR, 4, 5)
    assert found.dense().tolist() == [-1, 1, 5, 5, 3, 7, 7, 7, 7, 7, -2]


def test_one_bit_is_the_least_and_the_largest() -> None:
    assert one_layer(1, 4, np.array([-2, 1, 6, 1.9], np.float32)).dense().tolist() == [-2, -2, 6, -2]


@pytest.mark.sample(30)
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1.0, 1e30, 3.2e38])
@pytest.mark.parametrize("shift", [0.0, 0.9])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("bucket", [1, 100, 1024])
def test_every_entry_is_within_half_a_unit(bits: int, bucket: int, shift: float, scale: float) -> None:
    value = (((np.random.default_rng(bits).random(5000) * 2 - 1) * (1 - shift) + shift) * scale).astype(np.float32)
    found = one_layer(bits, bucket, value).dense().astype(np.float64)
    for start in range(0, value.size, bucket):
        part = value[start : start + bucket].astype(np.float64)
        unit = (part.max() - part.min()) / (2**bits - 1)
        rounding = 2**-22 * np.abs(part).max() + 2 * 2.0**-149
        assert np.abs(found[start : start + bucket] - part).max() <= unit / 2 + rounding


def test_a_bucket_of_one_value_keeps_it_and_has_one_level() -> None:
    for value in (0.0, 0.1, -1e-42, MAX_FLOAT32):
        found = one_layer(4, 100, np.full(1000, value, np.float32))
        assert (found.dense() == np.float32(value)).all()
        assert np.unique(found.levels).size == 1


def test_small_and_one_dimensional_tensors_stay_dense_and_neighbours_are_one_piece() -> None:
    value = np.random.default_rng(0).standard_normal(N, np.float32)
    pieces = encode(Cgx(4, 1024), value, SHAPES)
    assert layout(pieces) == [("16 levels", 2048), ("dense", 6088), ("16 levels", 1024), ("16 levels", 9000)]
    assert pieces.n == N
    assert pieces.sparse() is None  # type: ignore[func-returns-value]
    dense = pieces.dense()
    assert np.array_equal(dense[2048:8136], value[2048:8136])
    for part in (slice(0, 2048), slice(8136, 9160), slice(9160, N)):
        assert np.array_equal(dense[part], Cgx(4, 1024).quantize(CompensatedUpdate(value[part])).dense())


def test_the_size_below_which_tensors_stay_dense_is_a_setting() -> None:
    value = np.random.default_rng(0).standard_normal(N, np.float32)
    assert layout(encode(Cgx(4, 1024, dense_below=0), value, SHAPES))[1:3] == [("dense", 65), ("16 levels", 1023)]
    assert layout(encode(Cgx(4, 1024, dense_below=10**6), value, SHAPES)) == [("dense", N)]


@pytest.mark.parametrize("n", [1, 100, 5000])
def test_a_vector_of_unknown_tensors_is_one_layer(n: int) -> None:
    value = np.random.default_rng(0).standard_normal(n, np.float32)
    pieces = encode(Cgx(3, 64), value, ())
    assert layout(pieces) == [("8 levels", n)]


def test_adaptive_bits_go_to_sensitive_layers_and_cost_less_for_the_same_error() -> None:
    rng = np.random.default_rng(1)
    shapes = ((100, 300), (100, 300), (100,), (200, 600), (60, 60))
    scales = np.repeat([1.0, 0.01, 1.0, 0.1, 3.0], [30_000, 30_000, 100, 120_000, 3600])
    value = (rng.standard_normal(scales.size) * scales).astype(np.float32)
    uniform, adaptive = (encode(Cgx(6, 1024, adaptive), value, shapes) for adaptive in (False, True))

    def bits(pieces: Segments) -> int:
        return sum(p.n * (p.scale.count.bit_length() - 1) for p in pieces.pieces if isinstance(p, Levels))

    def error(pieces: Segments) -> float:
        return float(np.square(pieces.dense() - value, dtype=np.float64).sum())

    counts = [piece.scale.count for piece in adaptive.pieces if isinstance(piece, Levels)]
    assert counts[3] > counts[0] > counts[2] > counts[1]
    assert bits(adaptive) < 0.9 * bits(uniform)
    assert error(adaptive) <= 1.02 * error(uniform)  # what is held is the error that ranges lead to expect
    assert np.array_equal(adaptive.dense()[60_000:60_100], value[60_000:60_100])


def test_more_tolerance_takes_fewer_bits_and_no_error_the_fewest() -> None:
    value = np.random.default_rng(2).standard_normal(40_000, np.float32)
    shapes = ((100, 100),) * 4
    assert {p[0] for p in layout(encode(Cgx(4, 512, True, tolerance=5), value, shapes))} == {"8 levels"}
    assert {p[0] for p in layout(encode(Cgx(4, 512, True), value, shapes))} >= {"16 levels"}
    assert {p[0] for p in layout(encode(Cgx(4, 512, True), value * 0, shapes))} == {"4 levels"}


def test_the_error_of_a_bucket_counts_once_for_each_entry_that_it_has() -> None:
    value = np.concatenate([np.linspace(-1, 1, 2000), np.linspace(-1, 1, 20_000)]).astype(np.float32)
    # Eight levels in place of 16 have (15 / 7)^2 = 4.6 times the error: half as much again leaves that to the small layer.
    pieces = encode(Cgx(4, 1 << 20, adaptive=True, tolerance=1.5), value, ((2, 1000), (2, 10_000)))
    assert layout(pieces) == [("8 levels", 2000), ("16 levels", 20_000)]


def test_dense_pieces_do_not_share_the_memory_of_the_update() -> None:
    value = np.ones(100, np.float32)
    pieces = encode(Cgx(), value, ((100,),))
    assert isinstance(pieces.pieces[0], Dense)
    assert not np.shares_memory(pieces.pieces[0].vector, value)


@pytest.mark.parametrize(("bits", "tolerance", "least"), [(8, 0.3, "1"), (4, 0.003, "0.00346")])
def test_a_tolerance_that_eight_bits_do_not_reach_is_refused(bits: int, tolerance: float, least: str) -> None:
    with pytest.raises(ValueError, match=f"{tolerance}.*{least}"):
        Cgx(bits, adaptive=True, tolerance=tolerance)
    assert Cgx(bits, tolerance=tolerance).tolerance == tolerance, "without `adaptive` it has no meaning"
    Cgx(bits, adaptive=True, tolerance=1.01 * float(least))


def total(bits: list[int], entries: list[int]) -> int:
    return sum(each * size for each, size in zip(bits, entries, strict=True))


def error(bits: list[int], squares: list[float]) -> float:
    return sum(rounding_error(square, each) for each, square in zip(bits, squares, strict=True))


def layers(rng: np.random.Generator, count: int) -> tuple[list[int], list[float]]:
    entries = (10 ** rng.uniform(3, 6, count)).astype(int)
    return entries.tolist(), (entries * 10 ** rng.uniform(-4, 2, count)).tolist()


def test_the_error_of_levels_a_unit_apart_is_a_twelfth_an_entry() -> None:
    assert rounding_error(15**2 / 12, 4) == pytest.approx(1 / 12)
    # and that is what rounding does to entries spread evenly
    values = np.random.default_rng(0).uniform(0, 15, 100_000)
    assert np.square(np.rint(values) - values).mean() == pytest.approx(1 / 12, rel=0.02)


def test_equal_layers_get_the_uniform_bits() -> None:
    for bits in range(2, 9):
        assert allocate([1000] * 5, [3.0] * 5, bits, 1.0) == [bits] * 5


def test_layers_without_error_get_the_fewest_bits() -> None:
    assert allocate([1000, 1000], [0.0, 5.0], 4, 1.0) == [2, 4]
    assert allocate([10, 1000], [0.0, 0.0], 8, 1.0) == [2, 2]
    assert allocate([], [], 4, 1.0) == []


def test_bits_move_from_the_insensitive_layer_to_the_sensitive_one() -> None:
    # The first has a hundred times the error of the second for the same bits and entries.
    sensitive, insensitive = allocate([1000, 1000], [100.0, 1.0], 4, 1.0)
    assert sensitive > insensitive
    assert sensitive + insensitive < 8


def test_a_step_that_does_not_fit_leaves_no_more_bits_than_the_uniform_choice() -> None:
    # Lowering the small layer first leaves the large one, which the error then just does not allow down to 4.
    for seed in range(300):
        rng = np.random.default_rng(seed)
        entries, squares = layers(rng, int(rng.integers(1, 12)))
        for bits in range(2, 9):
            chosen = allocate(entries, squares, bits, 1.0)
            assert total(chosen, entries) <= total([bits] * len(entries), entries)
            assert error(chosen, squares) <= error([bits] * len(entries), squares) * (1 + 1e-12)
            assert set(chosen) <= set(range(2, 9))


@pytest.mark.parametrize("tolerance", [0.5, 1.0, 2.0])
def test_three_layers_take_at_most_a_step_of_the_largest_more_than_the_best_of_all_choices(tolerance: float) -> None:
    # The greedy choice is the best one but for the step that did not fit, as of a linear program with convex errors.
    over = []
    for seed in range(150):
        entries, squares = layers(np.random.default_rng(seed), 3)
        allowed = tolerance * error([4] * 3, squares)
        fits = (c for c in map(list, itertools.product(range(2, 9), repeat=3)) if error(c, squares) <= allowed)
        best = min(total(choice, entries) for choice in fits)
        found = allocate(entries, squares, 4, tolerance)
        assert error(found, squares) <= allowed * (1 + 1e-12)
        assert best <= total(found, entries) <= best + max(entries)
        over.append(total(found, entries) / best)
    assert np.mean(over) < 1.01
    assert max(over) < 1.2


def test_more_error_allowed_never_takes_more_bits_and_less_may_take_all_eight() -> None:
    entries, squares = layers(np.random.default_rng(9), 50)
    totals = [total(allocate(entries, squares, 4, tolerance), entries) for tolerance in (1e-6, 0.1, 1, 2, 10, 1e6)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == 8 * sum(entries)
    assert totals[-1] == 2 * sum(entries)


def test_ten_thousand_layers_are_fast() -> None:
    entries, squares = layers(np.random.default_rng(10), 10_000)
    chosen = allocate(entries, squares, 4, 1.0)
    assert total(chosen, entries) < 3.5 * sum(entries)
    assert error(chosen, squares) > 0.999 * error([4] * 10_000, squares)


def test_the_least_tolerance_is_that_of_eight_bits_everywhere() -> None:
    assert least_tolerance(8) == 1
    assert least_tolerance(4) == pytest.approx((15 / 255) ** 2)
    entries, squares = layers(np.random.default_rng(11), 20)
    for bits in range(2, 9):
        allowed = least_tolerance(bits) * error([bits] * 20, squares)
        assert error([8] * 20, squares) == pytest.approx(allowed)
        assert allocate(entries, squares, bits, 0.99 * least_tolerance(bits)) == [8] * 20


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_random_rounding_is_unbiased_and_takes_one_of_the_two_next_levels(bits: int) -> None:
    vector = np.random.default_rng(bits).standard_normal(200).astype(np.float32)
    quantizer = Cgx(bits, bucket=200, rounding="random")
    draws = np.array(
        [quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(seed))).dense() for seed in range(400)]
    )
    grid = np.linspace(float(vector.min()), float(vector.max()), 1 << bits)
    check_mean(draws, vector, grid, scale=float(np.abs(vector).max()))
    errors = np.square(draws - vector, dtype=np.float64).sum(axis=1) / np.square(vector, dtype=np.float64).sum()
    bound = quantizer.error_bound(200)
    assert isinstance(bound, Unbiased)
    check_at_most(errors, bound.variance)


def test_levels_of_least_error_of_one_bit_are_the_means_of_both_sides() -> None:
    """-4 and 8 are the ends: 1 and -1 go to the lower level.  The means are (-4 + 1 - 1) / 3 and 8."""
    vector = np.array([-4, 1, -1, 8], np.float32)
    assert Cgx(1, 4).quantize(CompensatedUpdate(vector)).dense().tolist() == [-4, -4, -4, 8]
    found = Cgx(1, 4, scale="minimal").quantize(CompensatedUpdate(vector)).dense()
    assert found.tolist() == pytest.approx([-4 / 3, -4 / 3, -4 / 3, 8], rel=1e-6)


def test_levels_of_least_error_are_finite_where_the_ends_of_float32_are_in_one_bucket() -> None:
    rng = np.random.default_rng(0)
    parts = rng.choice([-1, 0, 0.5, 0.9, 1], (1000, 30))
    quantizer = Cgx(1, 30, dense_below=0, scale="minimal")
    with np.errstate(all="raise"):
        found = quantizer.quantize(CompensatedUpdate((parts * MAX_FLOAT32).astype(np.float32).ravel())).dense()
    assert np.isfinite(found).all()


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_error_feedback_around_levels_of_least_error_stays_bounded(bits: int) -> None:
    """Heavy-tailed vectors, whose error with the levels of the range is longer than they are."""
    compressor, rng = fedcomp.cgx(bits=bits, feedback=True), np.random.default_rng(bits)
    state, norms, lengths = compressor.init(1000), list[float](), list[float]()
    for seed in range(150):
        vector = rng.standard_t(2, 1000).astype(np.float32)
        lengths.append(float(np.linalg.norm(vector)))
        _, state = compressor.encode(vector, state, seed)
        norms.append(float(np.linalg.norm(state["residual"])))
    assert max(norms[100:]) < 3 * max(norms[20:70])
    assert max(norms[20:]) < 3 * float(np.median(lengths)), (
        "with the levels of the range it is 3.2 times as long, or more"
    )
