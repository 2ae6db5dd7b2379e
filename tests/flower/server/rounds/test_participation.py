"""Nodes that were asked, that answered and that did not: counted per node, and logged once per round."""

from typing import cast

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.compat import ErrorCode, make_message
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.server.rounds.participation import NodeState, Participation
from fedcomp.sync import Ledger, NodeRegistry
from tests.flower import toy

NODES = 4


def _strategy() -> CompressedStrategy:
    return CompressedStrategy(FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES), uplink=fedcomp.stc(density=0.1))


class Raising(ClientApp):
    """The toy app, which raises on node 2 in round 3."""

    def __call__(self, message: Message, context: Context) -> Message:
        config = cast(ConfigRecord, message.content["config"])
        if (context.node_id, config["server-round"]) == (2, 3):
            raise RuntimeError("as ordered")
        return toy.app()(message, context)


def _counts(state: NodeState) -> tuple[int, int, int]:
    return state.totals.refused, state.totals.failed, state.totals.missing


def test_each_node_has_its_version_its_last_round_and_its_lost_replies() -> None:
    grid = LocalGrid(Raising(), NODES)
    grid.order(3, *3 * [Fault.LOSE_REPLY])
    strategy = _strategy()
    strategy.start(grid, toy.model(), num_rounds=3)
    nodes = strategy.nodes
    assert {node: state.heard for node, state in nodes.items()} == {1: 3, 2: 3, 3: None, 4: 3}
    assert {node: state.version for node, state in nodes.items()} == {1: 2, 2: 1, 3: None, 4: 2}
    assert {node: state.absent for node, state in nodes.items()} == {1: False, 2: False, 3: True, 4: False}
    assert {node: _counts(state) for node, state in nodes.items()} == {
        1: (0, 0, 0),
        2: (0, 1, 0),
        3: (0, 0, 3),
        4: (0, 0, 0),
    }
    assert {node: state.totals for node, state in nodes.items()} == {
        node: totals for node, totals in strategy.ledger.by_node().items() if node
    }


def test_the_log_names_late_and_returning_nodes_once_per_round(flower_log: pytest.LogCaptureFixture) -> None:
    grid = LocalGrid(toy.app(), NODES)
    grid.order(2, *2 * [Fault.LOSE_MESSAGE])
    grid.order(4, Fault.CRASH)
    _strategy().start(grid, toy.model(), num_rounds=4)
    lines = [
        record.getMessage() for record in flower_log.records if "answer in time" in record.msg or "again" in record.msg
    ]
    assert lines == [
        "fedcomp: round 1: no answer in time from nodes 2, 4",
        "fedcomp: round 2: no answer in time from node 2",
        "fedcomp: round 2: answering again: node 4",
        "fedcomp: round 3: answering again: node 2",
    ]


def test_a_node_that_flower_reports_unavailable_is_missing_not_failed() -> None:
    messages = [Message(RecordDict(), node, "train") for node in _identity(4)]
    codes = (ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
    replies = [_reply(message, code) for message, code in zip(messages, codes, strict=False)]
    attendance, ledger = Participation(), Ledger()
    attendance.ask(message.metadata.dst_node_id for message in messages)
    attendance.take(7, replies, ledger)
    states = attendance.states(NodeRegistry(), ledger)
    assert {node: _counts(state) for node, state in states.items()} == {
        1: (0, 0, 1),
        2: (0, 0, 1),
        3: (0, 1, 0),
        4: (0, 0, 1),
    }
    assert attendance.heard == {3: 7}


def test_a_resumed_server_knows_when_each_node_last_answered(tmp_path: object) -> None:
    grid = LocalGrid(toy.app(), NODES)
    before = _strategy()
    before.start(grid, toy.model(), num_rounds=2)
    grid.order(3, Fault.LOSE_REPLY)
    before.start(grid, before.arrays, num_rounds=1)
    path = f"{tmp_path}/checkpoint"
    before.save(path)
    after = _strategy()
    after.load(path)
    assert {node: state.heard for node, state in after.nodes.items()} == {1: 3, 2: 3, 3: 2, 4: 3}
    assert {node: state.totals for node, state in after.nodes.items()} == {
        node: state.totals for node, state in before.nodes.items()
    }


def _identity(nodes: int) -> range:
    """Return node ids; afterwards messages can be made in this process."""
    LocalGrid(toy.app(), nodes)
    return range(1, nodes + 1)


def _reply(message: Message, code: int) -> Message:
    return make_message(Message(RecordDict(), reply_to=message).metadata, error=Error(code, "as ordered"))
