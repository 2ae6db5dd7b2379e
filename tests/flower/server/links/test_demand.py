"""How fast the nodes ask for what is unpublished: by hand, at the ends of quarters, and by chance."""

from dataclasses import replace

import numpy as np
import pytest

from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.demand import FEWEST, MOST, MOST_AT_FIRST, Demand

RNG = np.random.default_rng(0)
HALF = AskedFor(norm=4.0, unpublished=5.0, unpublished_norm=10.0)


def measured(rate: float, rounds: int, quarter: int = 1, *, noise: float = 0.1, ratio: float = 1.0) -> Demand:
    """Return what `rounds` rounds of this quarter leave that ask for this share of the unpublished, more or less."""
    demand = Demand(quarter)
    for _ in range(rounds):
        demand.add(AskedFor(1.0, rate * (1 + noise * RNG.standard_normal()), 1.0), ratio)
    return demand


def test_by_hand() -> None:
    demand = Demand()
    for _ in range(3):
        demand.add(HALF, 0.5)
    assert demand == Demand(0, 3, 15.0, 30.0, 1.5, 0.75, 1.5)


def test_nothing_is_judged_where_no_entries_stand_out() -> None:
    """With Adam on the nodes, versions leave nothing out from about the seventh round on, and those before it ask for much."""
    for is_flat in (True, False):
        demand = measured(1.0, 6, quarter=0)
        demand.begin(51, 200, leaves_nothing_out=is_flat)
        assert demand == Demand(1, is_high=not is_flat)


@pytest.mark.parametrize(("quarter", "most"), [(0, MOST_AT_FIRST), (1, MOST), (2, MOST), (3, MOST)])
def test_a_quarter_is_judged_when_the_next_one_begins_by_the_rounds_of_the_run(quarter: int, most: float) -> None:
    for factor in (0.9, 1.1):
        demand = measured(factor * most / 100, 20, quarter, noise=0.0)
        demand.begin(25 * (quarter + 1), 100)  # the last round of the quarter
        assert demand.rounds == 20
        assert not demand.is_high
        demand.begin(25 * (quarter + 1) + 1, 100)
        assert demand == Demand(quarter + 1, is_high=factor > 1)


def test_it_stays_high() -> None:
    demand = measured(0.5, 20)
    demand.begin(51, 100)
    for _ in range(20):
        demand.add(replace(HALF, unpublished=0.0), 1.0)
    demand.begin(76, 100)
    assert demand == Demand(3, is_high=True)


def test_a_few_rounds_tell_nothing() -> None:
    for rounds in (0, FEWEST - 1, FEWEST):
        demand = measured(0.5, rounds)
        demand.begin(51, 100)
        assert demand.is_high == (rounds == FEWEST)


def test_what_may_be_chance_tells_nothing() -> None:
    found = 0
    for _ in range(200):
        demand = measured(0.1, 25, noise=10.0)
        demand.begin(51, 100)
        found += demand.is_high
    assert found <= 10


def test_nodes_that_undo_what_is_unpublished_ask_for_nothing() -> None:
    demand = measured(-0.5, 20)
    demand.begin(51, 100)
    assert not demand.is_high


@pytest.mark.parametrize("ratio", [0.11, 0.13])
def test_where_little_is_unpublished_no_model_is_late(ratio: float) -> None:
    """Nodes that go one way in all rounds ask for it too."""
    demand = measured(0.5, 20, ratio=ratio)
    demand.begin(51, 100)
    assert demand.is_high == (ratio > 0.12)


def test_errors_that_grow_from_round_to_round_are_no_chance() -> None:
    """The last rounds alone make up the sums then."""
    demand = Demand(1)
    for number in range(20):
        demand.add(AskedFor(1.0, 0.5 * 10.0**number, 10.0**number), 1.0)
    demand.begin(51, 100)
    assert demand.is_high


def test_one_round_in_which_much_is_unpublished_tells_nothing() -> None:
    demand = Demand(1)
    demand.add(AskedFor(1.0, 0.5e6, 1e6), 1.0)
    for number in range(20):
        demand.add(AskedFor(1.0, 0.5 * (-1) ** number, 1.0), 1.0)
    demand.begin(51, 100)
    assert not demand.is_high


def test_a_round_before_which_nothing_was_unpublished_does_not_count() -> None:
    demand = Demand()
    demand.add(AskedFor(1.0, 0.0, 0.0), 0.0)
    assert demand == Demand()


def test_a_round_beyond_the_last_one_is_in_no_further_quarter() -> None:
    """Its checkpoint must be readable."""
    demand = Demand()
    demand.begin(1000, 100)
    demand.check()
