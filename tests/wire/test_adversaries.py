"""Bodies that are written to hold a receiver up take hardly more work than honest ones, or are refused."""

import sys
from collections import defaultdict
from random import Random
from types import FrameType

import numpy as np
import pytest

from fedcomp.errors import CorruptError
from fedcomp.sync import updates
from fedcomp.wire import Kind, decode_body, parse_single_frame
from tests.wire import adversaries, specimens
from tests.wire.adversaries import FORBIDDEN, MAKERS, Maker
from tests.wire.doors import pass_through
from tests.wire.mutants import Mutant
from tests.wire.specimens import Body

N, LARGE = 10_000, 100_000
BUDGET = 5
"""The most work that a hostile body may take, in multiples of the honest body with the most."""


def work(body: Body) -> int:
    """Return the calls that an update with this body takes: it is decoded, checked and added to a sum.

    numpy works on many entries in each, so a body of many small steps takes many.
    """
    published, calls, total = specimens.world(N).replica, 0, np.zeros(N, np.float32)
    update = parse_single_frame(specimens.update(N, *body))

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        updates.decode_update(update, published).change.add_to(total)
    finally:
        sys.setprofile(None)
    return calls


def test_hostile_bodies_take_at_most_five_times_the_work_of_honest_ones() -> None:
    honest: dict[int, int] = defaultdict(int)
    for number in specimens.numbers(N):
        body = specimens.body(N, number)
        honest[body[0]] = max(honest[body[0]], work(body))
    for make in MAKERS:
        for draw in range(8):
            body = make(Random(draw), N)
            assert work(body) <= BUDGET * honest[body[0]], f"{make.__name__}, draw {draw}"


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [10, N])
def test_slow_bodies_are_valid(make: Maker, n: int) -> None:
    for draw in range(4):
        codec, body = make(Random(draw), n)
        mutant = Mutant(Kind.UPDATE.name, n, codec, specimens.update(n, codec, body))
        assert not pass_through(mutant).refused, f"draw {draw}"


@pytest.mark.parametrize("make", FORBIDDEN)
def test_bodies_that_would_hold_a_receiver_up_are_refused(make: Maker) -> None:
    for draw in range(3):
        with pytest.raises(CorruptError, match="one a tensor|chunks of|at most 128|bytes of remainders"):
            decode_body(*make(Random(draw), LARGE), specimens.world(LARGE).replica.layout)


def test_the_bodies_are_the_same_on_every_run() -> None:
    found = [adversaries.body(N, number) for number in range(24)]
    adversaries.body.cache_clear()
    assert found == [adversaries.body(N, number) for number in range(24)]
