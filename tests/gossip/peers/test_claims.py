"""Which round a node goes on in: by hand, then under any claims of one neighbour."""

import random

import pytest

from fedcomp.gossip.peers.claims import MAX_SKIPPED, Claim, next_round

LAST = 400


def claims(*rounds: int, heard_in: int = 50) -> dict[int, Claim]:
    return {neighbor: Claim(each, heard_in) for neighbor, each in enumerate(rounds)}


@pytest.mark.parametrize(
    ("said", "num_neighbors", "is_alone", "following"),
    [
        (claims(), 2, True, 51),
        (claims(50, 51), 2, False, 51),
        (claims(120, 130), 2, True, 120),  # both are there: it joins the one that is less far
        (claims(120, 130), 2, False, 120),
        (claims(120, 130, 50), 3, False, 120),
        (claims(120, 50, 50), 3, True, 51),
        (claims(400, 50), 2, True, 51),  # the other one contradicts
        (claims(400), 1, True, 55),
        (claims(400), 1, False, 51),  # it is in step with that neighbour
        (claims(400), 2, True, 55),  # the other one is away
        (claims(400), 2, False, 51),  # and it mixes with the other one
        (claims(52), 1, True, 52),
        (claims(400, 400, heard_in=48), 2, True, 51),  # too long ago
        (claims(2**32 - 1, 2**32 - 1), 2, True, 51),
        (claims(12), 1, True, 51),
    ],
)
def test_the_next_round_by_hand(said: dict[int, Claim], num_neighbors: int, is_alone: bool, following: int) -> None:
    assert next_round(50, LAST, said, num_neighbors, is_alone=is_alone) == following


def test_no_single_claim_leads_to_the_last_round() -> None:
    said = claims(LAST, heard_in=LAST - 2)
    assert next_round(LAST - 2, LAST, said, 1, is_alone=True) == LAST - 1
    assert next_round(LAST - 1, LAST, said, 1, is_alone=True) == LAST


@pytest.mark.parametrize("seed", range(200))
def test_one_liar_moves_no_node_beyond_an_honest_neighbor_or_a_few_rounds(seed: int) -> None:
    rng = random.Random(seed)
    num_neighbors, own = rng.randrange(1, 7), rng.randrange(0, LAST)
    honest = [rng.randrange(LAST + 1) for _ in range(rng.randrange(num_neighbors))]
    said = claims(rng.randrange(2**32), *honest, heard_in=own - rng.randrange(3))
    following = next_round(own, LAST, said, num_neighbors, is_alone=rng.random() < 0.5)
    assert own < following <= max(own + 1 + MAX_SKIPPED, *honest, 0)
    assert following <= LAST


def test_a_node_that_was_down_for_long_reaches_its_only_neighbor_that_goes_on() -> None:
    own, other, trained = 5, 300, 0
    while own < other - 1:  # there, the other one waits for it
        own = next_round(own, 10_000, {0: Claim(other, own)}, 1, is_alone=True)
        other, trained = other + 1, trained + 1
    assert trained == 74
