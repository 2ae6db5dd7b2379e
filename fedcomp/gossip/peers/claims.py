"""The round in which a node continues, given the rounds that its neighbours claim to be in.

A node that was away joins its neighbours in their round; the training that it skips is lost.  A neighbour may be wrong or lie,
so a round that only one neighbour claims counts for little:

* A round that more than half of all neighbours, and at least two, have reached is believed: the node continues there.
* Otherwise, a node that mixed with nobody in its last round follows the majority of the neighbours that it heard.  It skips at
  most `MAX_SKIPPED` rounds at a time, and never skips to the last round.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_SKIPPED = 4
"""The most rounds that a node skips at a time because of the claim of one neighbour."""
FRESH_ROUNDS = 1
"""A claim counts in the round in which it was heard, and in this number of rounds after it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A neighbour said that it was in `round`, while this node was in round `heard_in`."""

    round: int
    heard_in: int


def next_round(own: int, last: int, claims: Mapping[int, Claim], num_neighbors: int, *, is_alone: bool) -> int:
    """Return the round that follows `own`, at most `last`; `is_alone` says whether no edge was used in `own`."""
    heard = [each.round for each in claims.values() if each.heard_in >= own - FRESH_ROUNDS and each.round <= last]
    heard.sort(reverse=True)
    following = own + 1
    majority = num_neighbors // 2 + 1
    if len(heard) >= majority > 1 and heard[majority - 1] > following:
        return heard[majority - 1]
    if is_alone and heard:
        return max(following, min(heard[len(heard) // 2], following + MAX_SKIPPED, last - 1))
    return following
