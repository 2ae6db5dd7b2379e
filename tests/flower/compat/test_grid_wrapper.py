"""The wrapper passes on all that Flower's Grid has."""

import random
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy, GridWrapper, LocalGrid, Speeds
from fedcomp.flower.compat import NodeInfo, WallClock, clock_of
from tests.flower.toy import Messages, app, model


def test_no_method_of_the_grid_is_left_to_its_base_class() -> None:
    methods = {name for name in vars(Grid) if not name.startswith("_")}
    assert methods == {name for name in vars(GridWrapper) if not name.startswith("_")} - {"wrapped"}
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
