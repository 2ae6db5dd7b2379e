"""Replies are parsed while the server waits for others; what comes out is what it would be without."""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.superlink.grid import InMemoryGrid

import fedcomp
from fedcomp.flower import CompressedStrategy, GridWrapper, LocalGrid
from fedcomp.flower.server import exchange
from fedcomp.flower.server.rounds import early_replies
from fedcomp.flower.server.rounds.early_replies import EarlyReplies
from fedcomp.sync import Publisher
from fedcomp.sync.publisher import Reply
from fedcomp.wire.frame import Kind
from tests.flower.attacks import MISFITS, Change, Meddling, copied, sends
from tests.flower.toy import floats, model

NODES, ROUNDS = 3, 2
PARSE_REPLY = Publisher.parse_reply
REPLIES: dict[str, Change] = {
    **MISFITS,
    "its own": lambda reply: [reply],
    "the same message twice": lambda reply: [reply, reply],
    "a copy too": lambda reply: [reply, copied(reply)],
    "a request for a key frame": sends(lambda frame: replace(frame, kind=Kind.RESYNC, payload=b"", flags=0, codec=0)),
}


class Trickling(Meddling):
    """A grid whose replies come one by one, for which the server waits as for those of Flower's grids."""

    send_and_receive = InMemoryGrid.send_and_receive

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        for reply in LocalGrid.pull_messages(self, sorted(message_ids)[:1]):
            meddle = reply.metadata.src_node_id == 2 and reply.metadata.message_type == "train"
            yield from self.change(reply) if meddle and reply.has_content() else [reply]


def run(grid: Grid) -> CompressedStrategy:
    """Return a strategy that has trained on `grid`."""
    random.seed(1)
    inner = FedAvg(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1), downlink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=ROUNDS, timeout=60.0)
    return strategy


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of nodes whose replies are parsed from now on, in this order; nobody sleeps."""
    nodes = list[int]()

    def parse_reply(self: Publisher, node: int, data: bytes) -> Reply:
        nodes.append(node)
        return PARSE_REPLY(self, node, data)

    monkeypatch.setattr(Publisher, "parse_reply", parse_reply)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    return nodes


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.usefixtures("parsed")
def test_the_result_is_that_of_replies_that_come_at_once(name: str) -> None:
    at_once, trickling = run(Meddling(REPLIES[name], nodes=NODES)), run(Trickling(REPLIES[name], nodes=NODES))
    assert floats(trickling.arrays).tobytes() == floats(at_once.arrays).tobytes()
    assert trickling.ledger.refused == at_once.ledger.refused
    assert trickling.ledger.uplink_bytes == at_once.ledger.uplink_bytes
    assert trickling.ledger.downlink_bytes == at_once.ledger.downlink_bytes


def test_a_reply_is_parsed_once_and_before_the_last_one_arrives(
    parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list[int]()

    class Watching(Trickling):
        """Counts the parsed replies at each question."""

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            before.append(len(parsed))
            return super().pull_messages(message_ids)

    run(GridWrapper(Watching(REPLIES["its own"], nodes=NODES)))
    assert before == list(range(ROUNDS * NODES)), "each question finds the replies before it parsed"
    assert len(parsed) == ROUNDS * NODES

    before.clear()
    parsed.clear()
    monkeypatch.setattr(early_replies, "MAX_DECODED_BYTES", 1)
    run(Watching(REPLIES["its own"], nodes=NODES))
    assert before == [done * NODES + min(asked, 1) for done in range(ROUNDS) for asked in range(NODES)], (
        "one fills the memory"
    )
    assert len(parsed) == ROUNDS * NODES


@pytest.mark.usefixtures("parsed")
def test_what_counts_is_what_a_reply_holds_when_it_is_validated() -> None:
    class Changing(Trickling):
        """Forges replies after the server has parsed them."""

        def __init__(self) -> None:
            super().__init__(REPLIES["its own"], nodes=NODES)
            self.seen: Message | None = None
            self.asked, self.forged = set[str](), 0

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            before, self.asked = self.asked, set(message_ids)
            if self.seen is not None and self.asked < before:  # in the same round
                MISFITS["one bit flipped"](self.seen)
                self.forged += 1
            replies = list(super().pull_messages(message_ids))
            self.seen = next((each for each in replies if each.metadata.src_node_id == 2), None)
            return replies

    grid = Changing()
    strategy = run(grid)
    assert strategy.ledger.refused == grid.forged > 0


def test_a_reply_is_parsed_again_for_another_version(parsed: list[int]) -> None:
    class Late(EarlyReplies):
        """Expects another version than the published one."""

        def add(self, messages: Sequence[Message], publisher: Publisher) -> None:
            super().add(messages, publisher)
            self._parsed = {key: replace(each, version=each.version - 1) for key, each in self._parsed.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "EarlyReplies", Late)
        run(Trickling(REPLIES["its own"], nodes=NODES))
    assert len(parsed) == ROUNDS * (NODES + NODES - 1), "all but the last one of a round twice"
