"""Whether changes grow because the nodes ask for what is unpublished: by hand, and what tells nothing."""

import pytest

from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.growth import FEWEST, FIRST_ROUNDS, GROWN, KEPT, MOST, Growth


def measured(growth: float, share: float, *, first: int = FIRST_ROUNDS, rounds: int = 30) -> Growth:
    """Return what rounds leave that ask for this share; after the `first`, changes have `growth` times the squared norm."""
    found = Growth()
    for number in range(1, rounds + 1):
        norm = 1.0 if number <= first else growth
        found.add(AskedFor(norm, share * norm, norm))
    return found


def test_by_hand() -> None:
    found = Growth()
    for norm in (2.0, 3.0, 1.0, 2.0, 9.0):
        found.add(AskedFor(norm, 0.5, 2.0))
    assert (found.rounds, found.first, found.is_found) == (5, 3.0, False)
    assert found.share == pytest.approx(0.25 * (1 - KEPT**5))


def test_changes_that_grow_because_the_nodes_ask_for_them_are_found() -> None:
    assert measured(1.1 * GROWN, 1.5 * MOST).is_found
    assert measured(1.1 * GROWN, 2.0 * MOST, rounds=FEWEST).is_found
    assert not measured(1.1 * GROWN, 2.0 * MOST, rounds=FEWEST - 1).is_found


@pytest.mark.parametrize(
    ("growth", "share", "first"),
    [
        (0.9 * GROWN, 1.5 * MOST, FIRST_ROUNDS),
        (1.1 * GROWN, 0.9 * MOST, FIRST_ROUNDS),
        (1.1 * GROWN, -1.0, FIRST_ROUNDS),
        (1.1 * GROWN, 1.5 * MOST, FIRST_ROUNDS - 1),
    ],
)
def test_other_changes_are_not(growth: float, share: float, first: int) -> None:
    """The last of them grow within the first rounds."""
    assert not measured(growth, share, first=first).is_found


def test_it_stays_found() -> None:
    found = measured(1.1 * GROWN, 1.5 * MOST)
    for _ in range(20):
        found.add(AskedFor(1.0, 0.0, 1.0))
    assert found.is_found


def test_rounding_errors_are_nothing_unpublished() -> None:
    found = Growth()
    found.add(AskedFor(1.0, 1e-9, 1e-16))
    found.add(AskedFor(1.0, 0.0, 0.0))
    assert found == Growth()
