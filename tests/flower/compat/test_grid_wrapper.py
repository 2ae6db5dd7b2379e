"""The wrapper passes on all that Flower's Grid has."""

import inspect
import random
import time
from collections.abc import Iterable, Sequence

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.superlink.grid import HttpGrid, InMemoryGrid

from fedcomp.flower import CompressedStrategy, Fault, GridWrapper, LocalGrid, Speeds
from fedcomp.flower.compat import NodeInfo, WallClock, clock_of
from fedcomp.flower.compat.grid_wrapper import waits_as_flower_does
from tests.flower.toy import Messages, app, model


def test_no_method_of_the_grid_is_left_to_its_base_class() -> None:
    methods = {name for name in vars(Grid) if not name.startswith("_")}
    assert methods == {name for name in vars(GridWrapper) if not name.startswith("_")} - {"wrapped", "arrive"}
    assert Grid.__abstractmethods__ <= methods


class Named(LocalGrid):
    """A grid that tells the name of each node's owner, as a SuperLink does."""

    def get_nodes(self) -> Iterable[NodeInfo]:
        random.uniform(0.7, 0.9)
        return [NodeInfo(node_id=node, owner_name=f"owner {node}") for node in self.get_node_ids()]


def test_a_strategy_sees_what_the_grid_tells_of_each_node() -> None:
    class Reading(FedAvg):
        """Keeps the owners of the nodes."""

        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            position = random.getstate()
            self.owners = [node.owner_name for node in grid.get_nodes()]
            assert random.getstate() == position
            return super().configure_train(server_round, arrays, config, grid)

    strategy = Reading()
    CompressedStrategy(strategy).start(Named(app(), 2), model(), 1)
    assert strategy.owners == ["owner 1", "owner 2"]


def test_the_clock_is_that_of_the_innermost_grid() -> None:
    grid = LocalGrid(app(), 2, speeds=Speeds())
    assert clock_of(GridWrapper(GridWrapper(grid))) is grid

    class Other(GridWrapper):
        """A grid that tells no time."""

    other = Other(grid)
    other._grid = None  # type: ignore[assignment]  # noqa: SLF001
    assert isinstance(clock_of(other), WallClock)


class Link(LocalGrid):
    """Waits as Flower's grids do; every third question for replies finds one."""

    send_and_receive = InMemoryGrid.send_and_receive

    def __init__(self, num_nodes: int) -> None:
        super().__init__(app(), num_nodes)
        self.questions = 0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.questions += 1
        return super().pull_messages(sorted(message_ids)[:1]) if self.questions % 3 == 0 else []


def evaluations(*nodes: int) -> list[Message]:
    config = ConfigRecord({"server-round": 1})
    return [Message(RecordDict({"arrays": model(), "config": config}), node, "evaluate") for node in nodes]


def test_replies_of_a_superlink_are_fetched_soon_after_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, pauses = Link(3), list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    replies = GridWrapper(GridWrapper(grid)).send_and_receive(evaluations(3, 1, 2))
    assert sorted(reply.metadata.src_node_id for reply in replies) == [1, 2, 3]
    assert grid.questions == 9
    assert pauses == pytest.approx([0.055, 0.0605, 0.05] * 2 + [0.055, 0.0605]), "they begin anew after each reply"


def test_the_pauses_grow_with_the_time_waited() -> None:
    clock, waited = WallClock(), list[float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", waited.append)
        for attempt in range(200):
            clock.wait(60.0, attempt)
        clock.wait(0.01, 0)
    assert waited[0] == 0.05
    assert all(pause <= 0.05 + sum(waited[:number]) / 4 for number, pause in enumerate(waited))
    assert waited[-3:] == [3.0, 3.0, 0.01]


def test_a_reply_that_never_comes_is_waited_for_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, pauses = Link(2), list[float]()
    grid.order(2, Fault.LOSE_REPLY)
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    replies = GridWrapper(grid).send_and_receive(evaluations(1, 2), timeout=10.0)
    assert [reply.metadata.src_node_id for reply in replies] == [1]
    assert sum(pauses) == pytest.approx(10.0)


def test_replies_that_came_in_time_are_not_lost_while_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()

    class Prompt(Link):
        """Answers each question."""

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return LocalGrid.pull_messages(self, sorted(message_ids)[:1])

    class Busy(GridWrapper):
        """Takes longer than the timeout for each reply."""

        def arrive(self, replies: Sequence[Message]) -> None:
            pauses.extend(20.0 for _ in replies)

    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    assert len(list(Busy(Prompt(2)).send_and_receive(evaluations(1, 2), timeout=10.0))) == 2
    assert sum(pauses) == 20, "nobody waits after the end"


def test_a_grid_that_waits_in_its_own_way_is_asked_to() -> None:
    class Own(Link):
        """Answers at once."""

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            return [*LocalGrid.pull_messages(self, list(self.push_messages(messages)))]

    grid = Own(2)
    assert len(list(GridWrapper(grid).send_and_receive(evaluations(1, 2)))) == 2
    assert grid.questions == 0


@pytest.mark.parametrize("kind", [HttpGrid, InMemoryGrid])
def test_the_grids_of_flower_push_and_pull_now_and_then(kind: type[Grid]) -> None:
    grid = object.__new__(kind)
    assert waits_as_flower_does(grid)
    source = inspect.getsource(kind.send_and_receive)
    assert "self.push_messages(messages)" in source
    assert "self.pull_messages(msg_ids)" in source
    assert "time.sleep" in source
