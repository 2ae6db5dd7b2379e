"""Virtual time: replies of `LocalGrid` arrive when nodes of given speeds would send them."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcomp.flower import GridWrapper, LocalGrid, NodeSpeed, Speeds
from fedcomp.flower.compat import WallClock, clock_of
from fedcomp.flower.local_grid import Fault

BYTES = 1_000_000


def _record(size: int) -> RecordDict:
    array = Array("uint8", (size,), "numpy.ndarray", b"\0" * size)
    return RecordDict({"arrays": ArrayRecord({"x": array})})


def _echo() -> ClientApp:
    """Return an app that answers with half the bytes."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(_record(BYTES // 2), reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    return app


def _messages(*nodes: int, kind: str = "train") -> list[Message]:
    return [Message(_record(BYTES), node, kind) for node in nodes]


def test_a_reply_takes_its_message_its_work_and_two_round_trips() -> None:
    """8 Mbit down at 4 Mbit/s, 3 s of work, 4 Mbit up at 1 Mbit/s, and twice 0.1 s."""
    speed = NodeSpeed(compute_s=3.0, down_mbit_s=4.0, up_mbit_s=1.0, round_trip_s=0.1)
    grid = LocalGrid(_echo(), 2, speeds=lambda *_: speed)
    assert len(list(grid.send_and_receive(_messages(1, 2)))) == 2
    assert grid.now() == pytest.approx(2 + 3 + 4 + 0.2)
    grid.send_and_receive(_messages(1, kind="query"))
    assert grid.now() == pytest.approx(9.2 + 2 + 0.2), "a query is no work, and its answer has no bytes"


def test_replies_come_in_the_order_of_their_arrival_and_not_before() -> None:
    grid = LocalGrid(_echo(), 3, speeds=lambda node, _: NodeSpeed(compute_s=4.0 - node))
    ids = list(grid.push_messages(_messages(1, 2, 3)))
    assert list(grid.pull_messages(ids)) == []
    grid.wait(10.0)
    assert grid.now() == 1.0
    assert [reply.metadata.src_node_id for reply in grid.pull_messages(ids)] == [3]
    grid.wait(0.25)
    assert (grid.now(), list(grid.pull_messages(ids))) == (1.25, [])
    grid.wait(10.0)
    grid.wait(10.0)
    assert [reply.metadata.src_node_id for reply in grid.pull_messages(ids)] == [2, 1]
    assert grid.now() == 3.0
    grid.wait(10.0)
    assert grid.now() == 13.0


def test_a_node_does_one_thing_after_the_other() -> None:
    grid = LocalGrid(_echo(), 1, speeds=lambda *_: NodeSpeed(compute_s=2.0))
    grid.push_messages(_messages(1))
    grid.send_and_receive(_messages(1))
    assert grid.now() == 4.0


def test_a_lost_reply_takes_the_time_until_the_timeout() -> None:
    grid = LocalGrid(_echo(), 2, speeds=lambda *_: NodeSpeed(compute_s=2.0))
    grid.order(1, Fault.LOSE_REPLY)
    assert len(list(grid.send_and_receive(_messages(1, 2), timeout=30.0))) == 1
    assert grid.now() == 30.0
    assert list(grid.send_and_receive(_messages(2), timeout=1.0)) == []
    assert grid.now() == 31.0


def test_without_speeds_replies_come_at_once() -> None:
    grid = LocalGrid(_echo(), 2)
    assert len(list(grid.send_and_receive(_messages(1, 2)))) == 2
    assert grid.now() == 0.0


def test_the_clock_of_a_wrapped_grid_is_its_own() -> None:
    grid = LocalGrid(_echo(), 1)
    assert clock_of(GridWrapper(GridWrapper(grid))) is grid

    class Other(GridWrapper):
        @property
        def wrapped(self) -> Any:
            return None

    assert isinstance(clock_of(Other(grid)), WallClock)


def test_the_wall_clock_sleeps_no_longer_than_it_is_asked() -> None:
    clock = WallClock()
    begin_s = clock.now()
    clock.wait(0.001, attempt=1000)
    assert clock.now() - begin_s >= 0.001


def test_speeds_are_seeded_and_some_nodes_are_slow() -> None:
    speeds = Speeds(compute_s=2.0, slow=0.25, slowdown=10.0, spread=0.1, seed=3)
    times = np.array([[speeds(node, number).compute_s for number in range(20)] for node in range(1, 401)])
    slow = np.array([speeds.is_slow(node) for node in range(1, 401)])
    assert 70 < slow.sum() < 130
    assert np.median(times[~slow]) == pytest.approx(2.0, rel=0.02)
    assert np.median(times[slow]) == pytest.approx(20.0, rel=0.02)
    assert np.log(times[~slow]).std() == pytest.approx(np.log(1.1), rel=0.05)
    again = Speeds(compute_s=2.0, slow=0.25, slowdown=10.0, spread=0.1, seed=3)
    assert again(7, 3) == speeds(7, 3) != speeds(7, 4)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"compute_s": -1.0}, "compute_s is -1"),
        ({"slow": 1.5}, "slow is 1.5"),
        ({"slowdown": 0.5}, "slowdown is 0.5"),
        ({"spread": -0.1}, "spread is -0.1"),
        ({"down_mbit_s": 0.0}, "down_mbit_s is 0"),
        ({"up_mbit_s": float("nan")}, "up_mbit_s is nan"),
        ({"round_trip_s": -1.0}, "round_trip_s is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_speeds_out_of_range_are_refused(settings: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        Speeds(**settings)
