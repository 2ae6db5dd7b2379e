"""The memory of a node and of the server in models, and that nobody's model changes because others share its memory."""

import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import AsyncMode, CompressedStrategy, CompressionMod, LocalGrid, to_record
from fedcomp.flower.compat import ClientAppCallable, LazyArray, record_from_bytes, record_to_bytes
from fedcomp.flower.local_grid import Fault
from tests.flower import toy

N, TENSORS = 1 << 20, 16
STC = fedcomp.parse("stc(density=0.0025)")


@contextmanager
def traced(peaks: list[float]) -> Generator[None]:
    """Append the peak of what the block takes to `peaks`, in models of N entries."""
    tracemalloc.start()
    try:
        yield
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1] / (4 * N))
        tracemalloc.stop()


def _config(store: str, folder: Path) -> UserConfig:
    return {"state-dir": str(folder)} if store == "state-dir" else {}


def trained(message: Message, context: Context) -> Message:
    """Return the model with a little noise added; of its own, an app that does this holds the reply alone."""
    rng = np.random.default_rng(context.node_id)
    arrays = cast(ArrayRecord, message.content["arrays"])
    step = np.float32(1e-3)
    record = {
        name: Array(each.numpy() + step * rng.standard_normal(each.shape, np.float32)) for name, each in arrays.items()
    }
    return Message(
        RecordDict({"arrays": ArrayRecord(record), "metrics": MetricRecord({"num-examples": 1})}), reply_to=message
    )


@pytest.mark.parametrize(("store", "most"), [("Context.state", 7.2), ("state-dir", 6.2)])
def test_a_node_and_the_server_hold_few_vectors_beyond_what_plain_flower_does(
    store: str, most: float, tmp_path: Path
) -> None:
    node_peaks, server_peaks = list[float](), list[float]()

    def measured(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        content, message.content = message.content, RecordDict()
        with traced(node_peaks):
            message.content = record_from_bytes(record_to_bytes(content))  # as it comes from the wire
            return call_next(message, context)

    class Measured(CompressedStrategy):
        """A strategy whose aggregation is measured."""

        def aggregate_train(self, server_round: int, replies: toy.Messages) -> toy.Aggregate:
            with traced(server_peaks):
                return super().aggregate_train(server_round, replies)

    app = ClientApp(mods=[measured, CompressionMod()])
    app.train()(trained)
    grid = LocalGrid(app, 1, node_config=lambda _: _config(store, tmp_path))
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = Measured(inner, uplink=STC, downlink=STC)
    rng = np.random.default_rng(0)
    first = to_record({f"layer.{i}": rng.standard_normal(N // TENSORS, np.float32) for i in range(TENSORS)})
    strategy.start(grid, first, num_rounds=4)

    replica = strategy.publisher.replica
    assert replica.origin is not None, "the replicas count their steps: they hold all that a replica can"
    # the reply, the vector, its origin and counts, the residual and the change
    assert node_peaks[0] < 4.5
    assert max(node_peaks[1:]) < most
    # the change of the replies and the new vector; in the first round, the residual and the counts begin
    assert server_peaks[0] < 4.2
    assert max(server_peaks[1:]) < 2.2
    for array in strategy.arrays.values():
        assert np.shares_memory(cast(LazyArray, array).values, replica.vector)


@pytest.mark.parametrize("link", ["stc(density=0.1)", "eden(bits=1)", "dense()", "auto()"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_record_of_a_version_stays_as_it_was(link: str, dtype: str) -> None:
    """Someone who keeps the best model finds it unchanged in the end."""
    kept: list[tuple[ArrayRecord, toy.Arrays]] = []

    def keep(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        kept.append((arrays, toy.arrays_of(arrays)))
        return MetricRecord({"round": server_round})

    compressor = fedcomp.parse(link)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=compressor, downlink=compressor)
    first = to_record(
        {name: array.astype(dtype) if array.ndim else array for name, array in toy.arrays_of(toy.model()).items()}
    )
    strategy.start(LocalGrid(toy.app(), 2), first, num_rounds=5, evaluate_fn=keep)
    assert len(kept) == 6
    assert any((kept[0][1][name] != kept[-1][1][name]).any() for name in kept[0][1])
    for record, arrays in kept:
        for name, array in arrays.items():
            np.testing.assert_array_equal(record[name].numpy(), array)


@pytest.mark.parametrize("store", ["Context.state", "in memory", "state-dir"])
def test_a_model_that_an_app_keeps_stays_as_it_was(store: str, tmp_path: Path) -> None:
    kept: list[tuple[ArrayRecord, toy.Arrays]] = []

    def keep(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        kept.append((arrays, toy.arrays_of(arrays)))
        if "first" not in context.state:
            context.state["first"] = arrays
            context.state["sum"] = ConfigRecord({"first": float(toy.floats(arrays).sum())})
        return call_next(message, context)

    app = ClientApp(mods=[CompressionMod(), keep])
    app.train()(trained)
    grid = LocalGrid(app, 1, node_config=lambda _: _config(store, tmp_path), in_memory=store == "in memory")
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    first = ArrayRecord({name: array for name, array in toy.model().items() if "norm" not in name})
    CompressedStrategy(inner, uplink=STC, downlink=STC).start(grid, first, num_rounds=5)
    assert len(kept) == 5
    for record, arrays in kept:
        for name, array in arrays.items():
            np.testing.assert_array_equal(record[name].numpy(), array)
    state = grid.contexts[1].state
    held, total = cast(ArrayRecord, state["first"]), cast(ConfigRecord, state["sum"])["first"]
    assert float(toy.floats(held).sum()) == total


def test_the_memory_of_a_published_model_cannot_be_written_through_its_record() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=STC, downlink=STC)
    strategy.start(LocalGrid(toy.app(), 2), toy.model(), num_rounds=1)
    with pytest.raises(ValueError, match="read-only"):
        cast(LazyArray, strategy.arrays["layer.weight"]).values[:] = 0


@pytest.mark.parametrize("mode", [None, AsyncMode(buffer=2)])
@pytest.mark.parametrize("fault", [None, Fault.CRASH, Fault.LOSE_MESSAGE, Fault.LOSE_REPLY])
def test_the_server_keeps_no_exact_tensors_of_older_models(fault: Fault | None, mode: AsyncMode | None) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_train=0.2, fraction_evaluate=0.0), mode=mode)
    grid = LocalGrid(toy.app(), 30)
    if fault is not None:
        for node in range(1, 16):
            grid.order(node, *[fault] * 15)
    strategy.start(grid, toy.model(), num_rounds=15, timeout=1.0)  # a counter changes in each version
    nodes, newest = strategy.publisher.nodes, strategy.publisher.replica
    assert len(nodes) > 20
    held = [record for record in nodes.values() if record.sent.exact and record.sent.version < newest.version]
    assert len(held) <= (0 if mode is None else 6), "without rounds, a fifth of the nodes may be busy"
