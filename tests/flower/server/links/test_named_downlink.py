"""A named downlink that leaves out too much of what the nodes ask for is found, once; an ordinary one is not."""

import pytest

from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.demand import SURE
from fedcomp.flower.server.links.named_downlink import FAR_TOO_OFTEN, FIRST_ROUNDS, GROWTH, MOST, NamedDownlink


def found(growth: float, share: float, *, first: int = FIRST_ROUNDS, rounds: int = 30) -> list[int]:
    """Return the rounds that are found: after the `first`, changes have `growth` times the squared norm."""
    named = NamedDownlink()
    norms = [1.0 if number <= first else growth for number in range(1, rounds + 1)]
    return [number for number, norm in enumerate(norms, 1) if named.add(AskedFor(norm, share * norm, norm))]


def test_changes_that_grow_because_the_nodes_ask_for_them_are_found_once() -> None:
    assert found(1.1 * GROWTH, 1.1 * MOST) == [SURE]


@pytest.mark.parametrize(
    ("growth", "share", "first"),
    [
        (0.9 * GROWTH, 1.1 * MOST, FIRST_ROUNDS),
        (1.1 * GROWTH, 0.9 * MOST, FIRST_ROUNDS),
        (1.1 * GROWTH, -1.0, FIRST_ROUNDS),
        (1.1 * GROWTH, 1.1 * MOST, FIRST_ROUNDS - 1),
    ],
)
def test_other_changes_are_not(growth: float, share: float, first: int) -> None:
    """The last of them grow within the first rounds."""
    assert found(growth, share, first=first) == []


def test_what_is_asked_for_too_often_is_found_without_growth() -> None:
    def often(times: float) -> int:
        named = NamedDownlink()
        return sum(named.add(AskedFor(1.0, times, times * times)) for _ in range(30))

    assert (often(0.9 * FAR_TOO_OFTEN), often(1.1 * FAR_TOO_OFTEN)) == (0, 1)
