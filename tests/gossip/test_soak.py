"""A small share of the soak's trials of gossip; and that they find what is broken."""

from collections.abc import Mapping

import pytest

from fedcomp.core import Arrays
from fedcomp.gossip import deep_squeeze
from fedcomp.gossip.peers import peer
from fedcomp.gossip.peers.claims import Claim
from tests.flower import soak
from tests.gossip import soak as gossip_soak

SEED = 20
"""Another seed than those of the long runs."""
KINDS = ("gossip",)


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(2))
def test_no_faults_break_a_law(part: int) -> None:
    result = soak.soak(SEED, 100 * part, lambda result: result.trials == 6, KINDS)
    assert not result.broken, next(iter(result.broken.values()))
    assert len(result.faults) > 12
    assert 0 < result.seen["exact sum"] < 6


@pytest.mark.nightly
def test_a_trial_is_the_same_on_every_run() -> None:
    first, second = (soak.soak(SEED, 3, lambda result: result.trials == 2, KINDS) for _ in range(2))
    assert list(first.lines()) == list(second.lines())


def broken(trials: int = 20, first: int = 0) -> str:
    """Return the first law that is broken, from the trial `first` on: one that is known to break it saves the others."""
    result = soak.soak(SEED, first, lambda result: bool(result.broken) or result.trials == trials, KINDS)
    (text,) = result.broken.values()
    return text


def test_an_edge_that_one_end_uses_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = peer.Peer.settle
    monkeypatch.setattr(peer.Peer, "settle", lambda self, neighbor, *, used: whole(self, neighbor, used=True))
    assert "the sum of models is off" in broken(first=9)


def test_a_doubt_that_is_never_settled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "moved", lambda trained, differences: trained)
    assert "the sum of models is off" in broken()


def test_a_liar_who_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def farthest(own: int, last: int, claims: Mapping[int, Claim], num_neighbors: int, *, is_alone: bool) -> int:
        return max([own + 1, *(min(each.round, last) for each in claims.values())])

    monkeypatch.setattr(gossip_soak, "next_round", farthest)
    assert "went from" in broken(first=2)


def test_a_message_that_changes_a_node_before_it_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = deep_squeeze.DeepSqueezeNode.take

    def take(self: deep_squeeze.DeepSqueezeNode, neighbor: int, frames: tuple[bytes, ...]) -> None:
        self.trained = self.trained + 1
        whole(self, neighbor, frames)

    monkeypatch.setattr(deep_squeeze.DeepSqueezeNode, "take", take)
    text = broken()
    assert "was refused has changed the node" in text or "the sum of models is off" in text


def test_a_state_that_loses_its_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = deep_squeeze.DeepSqueezeNode.to_arrays

    def to_arrays(self: deep_squeeze.DeepSqueezeNode) -> Arrays:
        arrays = whole(self)
        return arrays | {"trained": arrays["trained"] * 0}

    monkeypatch.setattr(deep_squeeze.DeepSqueezeNode, "to_arrays", to_arrays)
    assert "the sum of models is off" in broken()
