"""Whether the nodes ask for what is unpublished: with changes that go one way, go back, or are chance."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.lateness import FEWEST, Lateness
from fedcomp.quantized import UNIT
from fedcomp.sync import Origin, start_replica
from fedcomp.wire import layout_of

Vector = NDArray[np.float32]
N = 70_000
RNG = np.random.default_rng(0)
PUBLISHED, RESIDUAL = np.zeros(N, np.int32), np.zeros(N, np.float32)
PUBLISHED[::2], RESIDUAL[1::2] = 3 / UNIT, 1


def origin_of(counts: NDArray[np.int32]) -> Origin:
    model = {"w": RNG.standard_normal(counts.size, np.float32)}
    return replace(Origin.at(start_replica(layout_of(model), model)), counts=counts)


def asked(change: Vector, residual: Vector | None, origin: Origin | None, *, published: bool = True) -> AskedFor | None:
    memory = {} if residual is None else {"residual": residual}
    publisher = SimpleNamespace(memory=memory, replica=SimpleNamespace(origin=origin))
    return AskedFor.of(change, cast(Any, publisher), published=published)


def count(late: Lateness, change: Vector, residual: Vector, origin: Origin) -> None:
    found = asked(change, residual, origin)
    assert found is not None
    assert found.published is not None
    late.add(found.unpublished, found.unpublished + found.published)


def measured(changes: list[Vector], residual: Vector = RESIDUAL) -> Lateness:
    late, origin = Lateness(), origin_of(PUBLISHED)
    for change in changes:
        count(late, change, residual, origin)
    return late


def normal() -> Vector:
    return RNG.standard_normal(N, np.float32)


def test_by_hand() -> None:
    """One in four parts of what a change along all changes asks for is unpublished."""
    late = measured([np.ones(N, np.float32)] * 12)
    assert late.share == pytest.approx(1 / 4)
    assert late.unpublished == pytest.approx(12 * N / 2)
    assert late.whole_squares == pytest.approx(12 * (2 * N) ** 2)


def test_noise_does_not_hide_it() -> None:
    late = measured([0.05 + normal() for _ in range(25)])
    assert late.share == pytest.approx(1 / 4, rel=0.2)
    assert measured([change.astype(np.float32) * 1e-9 for change in 0.05 + RNG.standard_normal((25, N))]).share > 0.2


@pytest.mark.parametrize("way", [0.0, -0.05])
def test_changes_that_are_chance_or_undo_the_unpublished_ask_for_nothing(way: float) -> None:
    assert measured([way * RESIDUAL + normal() for _ in range(25)]).share == 0


def test_where_the_published_part_alone_is_asked_for_nothing_is_late() -> None:
    """Chance alone makes the other sum positive every other time."""
    published, origin = np.sign(PUBLISHED[:400]).astype(np.float32), origin_of(PUBLISHED[:400])
    shares = []
    for _ in range(60):
        late = Lateness()
        for _ in range(25):
            count(late, published + RNG.standard_normal(400, np.float32), RESIDUAL[:400], origin)
        shares.append(late.share)
    assert sum(share > 0 for share in shares) <= 2


def test_where_the_changes_undo_more_than_they_ask_for_nothing_can_be_told() -> None:
    assert measured([RESIDUAL - 2 * np.sign(PUBLISHED).astype(np.float32)] * 25).share == 0


def test_chance_hardly_ever_looks_like_learning() -> None:
    residual, origin = RNG.standard_normal(200, np.float32), origin_of(PUBLISHED[:200])
    found = 0
    for _ in range(400):
        late = Lateness()
        for _ in range(25):
            count(late, RNG.standard_normal(200, np.float32), residual, origin)
        found += late.share > 0
    assert found <= 8


def test_what_is_asked_for_by_hand() -> None:
    found = asked(np.full(N, 2, np.float32), RESIDUAL, origin_of(PUBLISHED))
    assert found == AskedFor(4 * N, N, N / 2, 3 * N)
    assert found is not None
    assert found.times == 1 / 4
    assert asked(np.ones(N, np.float32), RESIDUAL, origin_of(PUBLISHED), published=False) == AskedFor(N, N / 2, N / 2)
    assert asked(np.ones(N, np.float32), RESIDUAL, None) == AskedFor(N, N / 2, N / 2)


def test_an_unpublished_change_that_is_mostly_noise_holds_nothing() -> None:
    """Published at once, the noise of many rounds would undo what a model has learned."""
    for noise, times in ((4, 10), (6, 0)):  # cosines of 0.24 and 0.16
        change = np.ones(N, np.float32)
        found = asked(change, 10 * change + 10 * noise * normal(), None)
        assert found is not None
        assert found.times == pytest.approx(times, rel=0.1)


@pytest.mark.parametrize("odd", [np.inf, np.nan, 3e38])
def test_a_change_that_is_no_number_asks_for_nothing(odd: float) -> None:
    change = np.where(np.arange(N) == 3, np.float32(odd), np.float32(1))
    assert (asked(change, RESIDUAL, origin_of(PUBLISHED)) is None) is not bool(np.isfinite(odd))
    assert asked(np.zeros(N, np.float32), RESIDUAL, None) is None
    assert asked(change, None, None) is None


def test_sums_that_no_run_leaves_end_in_no_error() -> None:
    """A damaged checkpoint may hold them."""
    assert Lateness(15, 1e200, 1e300, 1e200, 1e300).share == 1


def test_a_few_rounds_tell_nothing() -> None:
    change = np.ones(N, np.float32)
    assert measured([change] * (FEWEST - 1)).share == 0 == Lateness().share
    assert measured([change] * FEWEST).share > 0
