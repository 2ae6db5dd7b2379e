"""Sketches keep sums and norms, of a whole vector and of the tensors of each shape."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.flower.server.links.sketch import MAX_GROUPS, SKETCH, Sketcher
from fedcomp.wire import Layout, Tensor


def normal(n: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(n, np.float32)


def sketcher(*shapes: tuple[int, ...], frozen: tuple[tuple[int, ...], ...] = ()) -> Sketcher:
    """Return the one of a model with tensors of these shapes, and further ones that are not compressed."""
    tensors = [Tensor(f"w{number}", shape, "float32", "compressed") for number, shape in enumerate(shapes)]
    exact = [Tensor(f"x{number}", shape, "float32", "exact") for number, shape in enumerate(frozen)]
    return Sketcher.of(Layout((*exact, *tensors)))


def squared(vector: Vector) -> float:
    return float(np.sum(vector.astype(np.float64) ** 2))


@pytest.mark.parametrize(
    "shapes",
    [[(1,)], [(SKETCH - 1,)], [(SKETCH + 1,)], [(3 * BLOCK_ENTRIES + 5,)], [(50, 40), (BLOCK_ENTRIES + 1,), (3,)]],
)
def test_a_sketch_is_linear_and_keeps_norms(shapes: list[tuple[int, ...]]) -> None:
    made, n = sketcher(*shapes), sum(int(np.prod(shape)) for shape in shapes)
    x, y = normal(n), normal(n, 1)
    np.testing.assert_allclose(made.sketch(x + y), made.sketch(x) + made.sketch(y), atol=1e-4)
    norms = [np.sum(made.sketch(normal(n, seed)) ** 2) / squared(normal(n, seed)) for seed in range(9)]
    assert np.mean(norms) == pytest.approx(1, rel=0.06)


@pytest.mark.parametrize(
    "shapes", [[(40, 50)], [(8,)] * 250, [()] * 2000, [(64, size) for size in range(1, 9)]], ids=len
)
def test_the_norms_of_sketches_of_tensors_of_any_size_scatter_little(shapes: list[tuple[int, ...]]) -> None:
    """Small tensors of one shape share all sums of their group."""
    made, n = sketcher(*shapes), sum(int(np.prod(shape)) for shape in shapes)
    norms = [np.sum(made.sketch(normal(n, seed)) ** 2) / squared(normal(n, seed)) for seed in range(50)]
    assert np.std(norms) < 0.1
    assert np.mean(norms) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("shapes", [1, 2, 16])
def test_a_sketch_uses_all_of_its_sums(shapes: int) -> None:
    made = sketcher(*[(100, 100 + number) for number in range(shapes)])
    assert (
        np.count_nonzero(made.sketch(normal(sum(100 * (100 + number) for number in range(shapes))))) == SKETCH == 2048
    )


def test_a_sketch_keeps_the_norm_of_a_vector_that_repeats_itself() -> None:
    """Without signs of its own for each place, the rows of a matrix would add up or cancel."""
    repeated = np.tile(normal(SKETCH), 100)
    made = sketcher((100, SKETCH))
    assert np.sum(made.sketch(repeated) ** 2) == pytest.approx(squared(repeated), rel=0.25)


def test_equal_tensors_are_no_equal_sums() -> None:
    """Where each tensor had the same signs, tensors of opposite sign would cancel in the sum of their group."""
    made, one = sketcher((SKETCH,), (SKETCH,)), normal(SKETCH)
    assert np.sum(made.sketch(np.concatenate([one, -one])) ** 2) == pytest.approx(2 * squared(one), rel=0.25)


def test_tensors_of_one_shape_are_a_group_and_the_largest_group_comes_first() -> None:
    made = sketcher((3,), (8, 2), (3,), (2, 8), (8, 2), frozen=((7,), (8, 2)))
    assert made.groups == (
        (slice(3, 19), slice(38, 54)),
        (slice(22, 38),),
        (slice(0, 3), slice(19, 22)),
    )


@pytest.mark.parametrize("shapes", [15, 16, 17])
def test_every_entry_is_in_one_group(shapes: int) -> None:
    made = sketcher(*[(size,) for size in range(1, shapes + 1)])
    parts = sorted((part.start, part.stop) for group in made.groups for part in group)
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == shapes * (shapes + 1) // 2
    assert len(made.groups) == min(shapes, MAX_GROUPS)


def test_tensors_without_entries_are_in_no_group() -> None:
    assert sketcher((5,), (0,)).groups == ((slice(0, 5),),)


def test_complex_tensors_are_grouped_as_real_numbers() -> None:
    tensors = [Tensor("z", (3, 4), "complex64", "compressed"), Tensor("w", (3, 4), "float32", "compressed")]
    assert Sketcher.of(Layout(tuple(tensors))).groups == ((slice(0, 24),), (slice(24, 36),))


def test_tensors_of_many_shapes_leave_the_last_group_to_the_smallest() -> None:
    made = sketcher(*[(size,) for size in range(1, 31)], (0,))
    assert len(made.groups) == MAX_GROUPS
    sizes = [sum(part.stop - part.start for part in group) for group in made.groups]
    assert sizes == [*range(30, 15, -1), sum(range(1, 16))]


def test_the_ratio_is_the_mean_over_entries_of_the_ratios_of_the_groups() -> None:
    """By hand: a half for 6,000 entries, and a tenth for 3,000; 1,000 have not moved."""
    made = sketcher((60, 100), (3000,), (10, 100))
    sent = np.concatenate([normal(6000), 0.01 * normal(3000, 1), np.zeros(1000, np.float32)])
    left = np.concatenate([np.sqrt(0.5) * normal(6000), np.sqrt(0.1) * 0.01 * normal(3000, 1), np.zeros(1000)])
    ratio = made.ratio(made.sketch(left.astype(np.float32)), made.sketch(sent))
    assert ratio == pytest.approx((0.5 * 6000 + 0.1 * 3000) / 9000, rel=1e-4)
    other = np.concatenate([np.sqrt(0.5) * normal(6000, 5), np.zeros(4000)]).astype(np.float32)
    assert made.ratio(made.sketch(other), made.sketch(sent)) == pytest.approx(0.5 * 6000 / 9000, rel=0.2)


@pytest.mark.parametrize(("sent", "expected"), [(0.0, 4.0), (1e-6, 4.0), (0.4, 4.0), (0.51, 0.51**-2)])
def test_a_group_of_which_little_or_nothing_is_published_counts_as_4(sent: float, expected: float) -> None:
    made = sketcher((100,), (50,))
    sums = made.sketch(np.concatenate([np.float32(sent) * normal(100), normal(50, 1)]))
    left = made.sketch(np.concatenate([normal(100), np.zeros(50, np.float32)]))
    assert made.ratio(left, sums) == pytest.approx(expected * 100 / 150, rel=1e-4)


@pytest.mark.parametrize("shapes", [[], [(0,)], [(5,)]], ids=str)
def test_where_nothing_has_moved_the_ratio_is_0(shapes: list[tuple[int, ...]]) -> None:
    made = sketcher(*shapes)
    nothing = made.sketch(np.zeros(sum(int(np.prod(shape)) for shape in shapes), np.float32))
    assert nothing.shape == (SKETCH,)
    assert made.ratio(nothing, nothing) == 0
