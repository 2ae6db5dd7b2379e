"""How fast training corrects an error: with changes that undo a known share of it, or none."""

import numpy as np
import pytest

from fedcomp.flower.server.links.self_correction import FEWEST, SelfCorrection
from fedcomp.flower.server.links.sketch import SKETCH, Sketch

RNG = np.random.default_rng(0)


def normal() -> Sketch:
    return RNG.standard_normal(SKETCH)


def measured(share: float, rounds: int, *, error: float = 1.0) -> SelfCorrection:
    """Return what is measured if changes undo this `share` of errors `error` times as long as they are."""
    correction = SelfCorrection()
    for _ in range(rounds):
        count(correction, normal(), error * normal(), share)
    return correction


def count(correction: SelfCorrection, change: Sketch, error: Sketch, share: float = 0.0) -> None:
    """Count a round in which `change` comes on top of what undoes this `share` of the `error`."""
    correction.error = error.tolist()
    correction.add(change - share * error, None)


def test_by_hand() -> None:
    correction, error, change = SelfCorrection(), np.zeros(SKETCH), np.zeros(SKETCH)
    error[:2] = 3, 4
    change[:3] = -1.5, -2, 2.5
    for _ in range(FEWEST + 1):
        correction.add(change, error)  # each error counts with the next change
    assert correction == SelfCorrection(error.tolist(), 10, 10.0, 10.0, 20.0)
    assert correction.share == pytest.approx(0.5)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_it_is_the_share_of_an_error_that_a_change_undoes_whatever_the_scale(scale: float) -> None:
    correction = SelfCorrection()
    for _ in range(20):
        count(correction, scale * normal(), scale * normal(), 0.1)
    assert correction.share == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("share", [0.0, -0.1])
def test_changes_that_keep_an_error_or_add_to_it_correct_nothing(share: float) -> None:
    assert measured(share, 20).share == 0


def test_chance_hardly_ever_looks_like_correction() -> None:
    assert sum(measured(0.0, 20).share > 0 for _ in range(200)) <= 4


def test_a_few_rounds_tell_nothing() -> None:
    assert measured(0.5, FEWEST - 1).share == 0 == SelfCorrection().share
    assert measured(0.5, FEWEST).share > 0
    assert [measured(0.0, FEWEST - 1).is_absent, measured(-0.1, FEWEST).is_absent] == [False, True]
    assert not measured(0.5, FEWEST).is_absent


def test_an_error_far_smaller_than_the_change_tells_nothing() -> None:
    """Such as the rounding to float32, where versions are dense."""
    assert measured(0.5, 20, error=0.09).rounds == 0
    assert measured(0.5, 20, error=0.2).rounds == 20


def test_rounds_without_a_change_or_an_error_do_not_count() -> None:
    correction = SelfCorrection()
    count(correction, np.zeros(SKETCH), normal())
    count(correction, normal(), np.zeros(SKETCH))
    count(correction, np.zeros(SKETCH), np.zeros(SKETCH))
    correction.add(normal(), None)
    assert correction == SelfCorrection()


def test_what_a_version_leaves_out_is_no_error() -> None:
    correction = SelfCorrection()
    for _ in range(5):
        correction.add(normal(), normal())
        correction.add(normal(), None)
    assert correction.rounds == 5
    assert correction.error == []
