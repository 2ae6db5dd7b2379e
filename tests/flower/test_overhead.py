"""The work of a message: function calls, which are the same on every machine, unlike seconds."""

import cProfile

import pytest
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from tests.flower.toy import app, model

pytestmark = pytest.mark.one_flower  # another Flower makes other calls
NODES, ROUNDS = 10, 2


@pytest.mark.parametrize(("link", "most"), [("dense()", 5300), ("stc(density=0.05)", 6600), ("auto()", 7300)])
def test_a_message_takes_no_more_calls_than_it_did(link: str, most: int) -> None:
    """`most` is half as much again as was needed when it was written, so that a factor of two is noticed."""
    both = fedcomp.parse(link)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=both, downlink=both)
    grid = LocalGrid(app(), NODES, in_memory=True)
    strategy.start(grid, model(), num_rounds=2)  # key frames, and what is computed once
    profile = cProfile.Profile()
    profile.runcall(strategy.start, grid, strategy.arrays, num_rounds=ROUNDS)
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls / (NODES * ROUNDS) <= most
