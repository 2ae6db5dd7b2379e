"""Which round a node goes on in, given the rounds in which its neighbours say that they are.

A node that was away joins its neighbours in their round; training that it skips so is lost.  A neighbour may err or lie, so a
round that one neighbour claims alone counts for little:

* A round that more than half of all neighbours have reached, and two at least, is believed: the node goes on there.
* Otherwise, a node that mixed with nobody in its last round follows the larger part of those that it heard, but skips
  `MAX_SKIPPED` rounds at a time, and never to the last round.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_SKIPPED = 4
"""The most rounds that a node skips at a time because of the claim of one neighbour."""
FRESH_ROUNDS = 1
"""A claim counts in the round in which it was heard, and in as many rounds after it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A neighbour said that it is in `round`, when this node was in round `heard_in`."""

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
