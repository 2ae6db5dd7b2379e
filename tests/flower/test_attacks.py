"""Every strategy bears every reply that one of five nodes, or the only one, may send: no reply ends the run."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import Clipping, CompressedStrategy, ReplyUse
from fedcomp.flower.strategies.reply_use import reply_use_of
from server.strategies import STRATEGIES, parse_strategy
from tests.flower.attacks import (
    EVALUATIONS,
    EXTREMES,
    FORGERIES,
    MISFITS,
    NODES,
    ONLY_MEANS_TAKE,
    Change,
    Meddling,
    sends_each,
)
from tests.flower.toy import floats, model

ATTACKS: dict[str, Change] = MISFITS | {forge.__name__: sends_each(forge) for forge in FORGERIES}
SETTINGS: Mapping[str, str] = {
    "krum": "num_malicious_nodes=1",
    "multikrum": "num_malicious_nodes=1, num_nodes_to_select=3",
}
ROBUST = ("krum", "multikrum", "fedmedian", "fedtrimmedavg", "majorityvote")
"""Strategies that bear any update of one of five nodes; Bulyan needs more nodes than these."""


def build(name: str, nodes: int, **settings: Any) -> CompressedStrategy:
    text = f"{name}({SETTINGS.get(name, '') if nodes == NODES else ''})"
    inner = parse_strategy(text)(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1, **settings)
    uplink = fedcomp.ef21(density=0.1) if name == "ef21" else fedcomp.stc(density=0.1)
    return CompressedStrategy(inner, uplink=uplink, downlink=fedcomp.stc(density=0.1))


ONE_OF_EACH_USE = {reply_use_of(build(name, NODES).inner): name for name in STRATEGIES}
"""A reply is validated for the use that a strategy makes of it, before the strategy sees it."""


def for_strategy(name: str, attacks: Mapping[str, Change], step: int) -> Mapping[str, Change]:
    """Return all attacks for one strategy of each use, and every `step`-th one for the others."""
    return attacks if name in ONE_OF_EACH_USE.values() else dict(list(attacks.items())[::step])


class Attacked(Meddling):
    """A grid in which a node sends another attack in each round but the first."""

    def __init__(self, attacks: Mapping[str, Change], nodes: int, kind: str = "train") -> None:
        rounds = iter([lambda reply: [reply], *attacks.values()])
        self.sent = -1  # without the first round
        super().__init__(lambda reply: self._counted(next(rounds)(reply)), node=1, kind=kind, nodes=nodes)

    def _counted(self, replies: list[Message]) -> list[Message]:
        self.sent += len(replies)
        return replies


@pytest.mark.sample(12)
@pytest.mark.one_flower
@pytest.mark.parametrize("nodes", [NODES, 1])
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_reply_ends_the_run(name: str, nodes: int) -> None:
    strategy = build(name, nodes, fraction_evaluate=0.0)
    attacks = for_strategy(name, ATTACKS, 5)
    grid = Attacked(attacks, nodes)
    # Bulyan makes nothing of the updates of one node, so its model is untrained at the end.
    untrained = pytest.raises(NoUpdateError) if (name, nodes) == ("bulyan", 1) else nullcontext()
    with untrained:
        strategy.start(grid, model(), num_rounds=1 + len(attacks))
    assert strategy.round == 1 + len(attacks)
    assert not strategy.failed_rounds
    assert np.isfinite(floats(strategy.arrays)).all()
    if nodes == NODES:
        assert strategy.version == 1 + len(attacks), "the others' updates count in each round"
        counting = int(reply_use_of(strategy.inner) is ReplyUse.MEAN and ONLY_MEANS_TAKE in attacks)
        assert strategy.ledger.refused == strategy.ledger.by_node()[1].refused == grid.sent - counting


@pytest.mark.sample(10)
@pytest.mark.one_flower
@pytest.mark.parametrize("nodes", [NODES, 1])
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_evaluation_ends_the_run(name: str, nodes: int) -> None:
    strategy = build(name, nodes)
    attacks = for_strategy(name, EVALUATIONS, 3)
    strategy.start(Attacked(attacks, nodes, "evaluate"), model(), num_rounds=1 + len(attacks))
    assert strategy.round == 1 + len(attacks)
    assert not strategy.failed_rounds


@pytest.mark.sample(29)
@pytest.mark.one_flower
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("attack", EXTREMES)
def test_no_extreme_value_ends_the_run(name: str, attack: str) -> None:
    strategy = build(name, NODES, fraction_evaluate=0.0)
    grid = Meddling(EXTREMES[attack], node=1)
    strategy.start(grid, model(), num_rounds=2)
    assert strategy.version == 2
    assert not strategy.failed_rounds
    assert np.isfinite(floats(strategy.arrays)).all()
    if name in ROBUST:
        assert abs(floats(strategy.arrays) - floats(model())).max() < 10, "the honest nodes decide"


@pytest.mark.parametrize(("clip_median", "clip_norm"), [(3, 0), (0, 1)])
@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedprox"])
def test_a_bound_of_the_norm_keeps_an_update_from_poisoning_the_average(
    name: str, clip_median: float, clip_norm: float, flower_log: pytest.LogCaptureFixture
) -> None:
    inner = parse_strategy(name)(fraction_evaluate=0.0)
    uplink = fedcomp.stc(density=0.1)
    strategy = CompressedStrategy(inner, uplink=uplink, clipping=Clipping(clip_norm, clip_median))
    strategy.start(Meddling(EXTREMES["an update of 9.9e+14"], node=1), model(), num_rounds=3)
    moved = floats(strategy.arrays) - floats(model())
    assert np.linalg.norm(moved) < 10
    assert "the update of node 1 is clipped to" in flower_log.text
    assert "the update of node 2 is clipped to" not in flower_log.text


def test_increments_are_not_clipped() -> None:
    with pytest.raises(ValueError, match="clipping does not go with EF21"):
        CompressedStrategy(parse_strategy("ef21")(), uplink=fedcomp.ef21(density=0.1), clipping=Clipping(norm=1))
