"""The seconds of encoding and decoding are CPU seconds of the codec: no waiting, no state, no training."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.context_store import ContextStore
from fedcomp.sync import SERVER_NODE, Publisher
from tests.flower.toy import app, model

NODES, ROUNDS, SECONDS = 2, 3, 0.05


def work() -> None:
    """Use the processor for `SECONDS`."""
    begin = time.thread_time()
    while time.thread_time() - begin < SECONDS:
        pass


def wait() -> None:
    time.sleep(SECONDS)


def seconds() -> tuple[float, float]:
    """Return the seconds of encoding and decoding of a run, under the server's number and under those of the nodes."""
    stc = fedcomp.stc(density=0.1)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=stc, downlink=stc)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=ROUNDS)
    rows = strategy.ledger.by_round_and_node().items()
    server, nodes = (
        sum(row.encode_seconds + row.decode_seconds for (_, node), row in rows if (node == SERVER_NODE) == is_server)
        for is_server in (True, False)
    )
    return server, nodes


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str, Callable[[], None]], None]:
    """Return a function that does something before each call of a method."""

    def add(owner: type, name: str, first: Callable[[], None]) -> None:
        plain = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            first()
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, method)

    return add


def test_what_the_codec_works_is_counted_on_both_sides(before: Any) -> None:
    before(Compressor, "encode", work)
    before(ClientState, "follow", work)
    server, nodes = seconds()
    assert nodes >= 2 * NODES * ROUNDS * SECONDS
    assert server >= ROUNDS * SECONDS


@pytest.mark.parametrize("needed", [True, False])
def test_jumps_are_counted_where_nodes_need_them(needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_jumps(_publisher: Publisher, _nodes: object) -> bool:
        work()
        return needed

    monkeypatch.setattr(Publisher, "make_jumps", make_jumps)
    server, _ = seconds()
    assert (server >= ROUNDS * SECONDS) == needed


@pytest.mark.parametrize(
    ("owner", "name", "first"),
    [
        (Compressor, "encode", wait),
        (ClientState, "follow", wait),
        (ContextStore, "load", work),
        (ContextStore, "save", work),
    ],
)
def test_neither_waiting_nor_the_state_of_a_node_is_counted(
    owner: type, name: str, first: Callable[[], None], before: Any
) -> None:
    before(owner, name, first)
    server, nodes = seconds()
    assert nodes < NODES * ROUNDS * SECONDS / 2
    assert server < ROUNDS * SECONDS / 2
