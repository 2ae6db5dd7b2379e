"""One of five nodes turns hostile, with another attack in each round; the others continue as if it were silent."""

import re
import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg, FedMedian, Krum, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, records
from tests.flower.attacks import NODES, Forge, another_model, copied, frame_of, garbage, gigabytes, lying_length, nans
from tests.flower.toy import app, floats, model

HOSTILE = 3
Replies = dict[int, Message]
"""The replies of a round, by node."""
Attack = Callable[["Besieged", Replies], list[Message]]


class Besieged(LocalGrid):
    """A grid in which the attack of the round replaces the replies of one node."""

    def __init__(self, attacks: dict[int, Attack]) -> None:
        super().__init__(app(), NODES)
        self.attacks, self.round, self.past = attacks, 0, dict[int, Message]()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        if not messages:  # without evaluation
            return []
        self.round += 1
        replies = {reply.metadata.src_node_id: reply for reply in super().send_and_receive(messages, timeout=timeout)}
        self.past[self.round] = _copy(replies[HOSTILE])
        attack = self.attacks.get(self.round)
        others = [reply for node, reply in replies.items() if node != HOSTILE]
        return others + (attack(self, replies) if attack else [replies[HOSTILE]])


def _copy(reply: Message, data: bytes | None = None) -> Message:
    """Return a copy of the reply, with other bytes if they are given."""
    other = copied(reply)
    if data is not None:
        other.content["arrays"] = records.pack(data)
    return other


def _bytes(reply: Message) -> bytes:
    found = records.packed(reply.content)
    assert found is not None
    return found[1]


def _sends(forge: Forge) -> Attack:
    """Return the attack that sends `forge` of the frame that the node would have sent."""
    return lambda _, replies: [
        _copy(replies[HOSTILE], made if isinstance(made, bytes) else made.to_bytes())
        for made in forge(frame_of(replies[HOSTILE]))
    ]


ATTACKS: dict[int, tuple[str, Attack]] = {
    2: ("the bytes begin with|bytes; a frame's head needs|frame format 70|the head promises", _sends(garbage)),
    3: ("it is for another model", _sends(another_model)),
    4: ("NaN or infinity|a magnitude of nan", _sends(nans)),
    5: ("the head promises|bytes follow the frame", _sends(lying_length)),
    6: ("2147483648|536870912", _sends(gigabytes)),
    7: ("it answers message", lambda grid, _: [_copy(grid.past[1])]),
    8: ("it answers message", lambda _, replies: [_copy(replies[HOSTILE], _bytes(replies[1]))]),
    9: ("", lambda grid, replies: []),
    10: ("it answers message", lambda grid, replies: [replies[HOSTILE], _copy(grid.past[9])]),
    11: ("was answered before", lambda grid, replies: [replies[HOSTILE], _copy(replies[HOSTILE])]),
}
"""By round, the attack and what the log says.

7 repeats an uplink that was taken, 8 brings another node's, 9 holds one back, which comes behind the next one in 10; in 10
and 11 the right one is taken, and the other is not.
"""
ROUNDS, TAKEN = 12, (1, 10, 11, 12)
INNER: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(fraction_train=1.0, fraction_evaluate=0.0),
    "FedMedian": lambda: FedMedian(fraction_train=1.0, fraction_evaluate=0.0),
    "Krum": lambda: Krum(fraction_train=1.0, fraction_evaluate=0.0, num_malicious_nodes=1),
}


def _train(grid: LocalGrid, inner: str) -> CompressedStrategy:
    """Return the strategy after all rounds."""
    strategy = CompressedStrategy(INNER[inner](), uplink=fedcomp.stc(density=0.1), downlink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=ROUNDS)
    return strategy


@pytest.mark.sample(1)
@pytest.mark.one_flower
@pytest.mark.parametrize("inner", INNER)
def test_replies_of_a_hostile_node_are_dropped_counted_and_logged_and_the_others_count(
    inner: str, flower_log: pytest.LogCaptureFixture
) -> None:
    silent: Attack = lambda grid, replies: []  # noqa: E731
    calm = _train(Besieged(dict.fromkeys(set(range(1, ROUNDS + 1)) - set(TAKEN), silent)), inner)
    grid = Besieged({number: attack for number, (_, attack) in ATTACKS.items()})
    flower_log.clear()
    tracemalloc.start()
    strategy = _train(grid, inner)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    np.testing.assert_array_equal(floats(strategy.arrays), floats(calm.arrays))
    assert strategy.version == ROUNDS
    assert peak < (8 << 20), "some megabytes are enough, whatever the claim"

    lines = [record.getMessage() for record in flower_log.records if "is dropped" in record.getMessage()]
    assert all(f"the reply of node {HOSTILE} is dropped" in line for line in lines)
    refused = {
        number: part.refused for (number, node), part in strategy.ledger.by_round_and_node().items() if node == HOSTILE
    }
    assert {number for number, count in refused.items() if count} == set(ATTACKS) - {9}
    assert sum(refused.values()) == strategy.ledger.refused == len(lines)
    assert {node for node, part in strategy.ledger.by_node().items() if part.refused} == {HOSTILE}
    for number, (reason, _) in ATTACKS.items():
        mine, lines = lines[: refused[number]], lines[refused[number] :]
        for line in mine:
            assert re.search(reason, line), f"round {number}: {line}"
