"""Weights that no node trained keep their bits and cost nothing: by every method, on both links, under every strategy."""

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flwr_strategies
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import EF21, AsyncMode, CompressedStrategy, LocalGrid, MajorityVote, Speeds, to_record
from fedcomp.methods import METHODS
from fedcomp.wire import FLAG_EXACT, float32_to_bfloat16
from tests.flower.toy import Arrays, state_of, training

pytestmark = pytest.mark.one_flower

UPLINKS = [name for name in METHODS if METHODS.about(name).uplink]
DOWNLINKS = [name for name in METHODS if METHODS.about(name).downlink]
SHAPES = {"base.weight": (30, 20), "base.bias": (20,), "head.weight": (20, 25), "base.scale": (), "head.bias": (25,)}
TRAINED = ("head.weight", "head.bias")
FROZEN = ("base.weight", "base.bias", "base.scale")
OVERHEAD = 2
"""Bytes of a body that say which of five tensors it holds, and in which code."""


def first_model(names: tuple[str, ...] = tuple(SHAPES)) -> ArrayRecord:
    """Return a model whose frozen tensors have values that no arithmetic returns unless it leaves them alone."""
    arrays: Arrays = {}
    for index, (name, shape) in enumerate(SHAPES.items()):
        array = np.random.default_rng(index).standard_normal(shape, np.float32)
        arrays[name] = np.asarray(array)
    arrays["base.weight"].ravel()[:4] = -0.0, 0.0, 1e-40, 3e38
    arrays["base.bias"][:] = -0.0
    return ArrayRecord({name: Array(arrays[name]) for name in names})


def step_of(name: str, context: Context, server_round: int) -> NDArray[np.float32]:
    node = int(context.node_config["partition-id"])
    rng = np.random.default_rng([node, server_round, len(name)])
    return rng.standard_t(3, SHAPES[name]).astype(np.float32) * np.float32(0.01)


def app(trains: Callable[[str, Context, int], bool]) -> ClientApp:
    """Return an app that adds noise to the tensors that ``trains(name, context, round)`` names."""

    def change(arrays: Arrays, context: Context, server_round: int) -> Mapping[str, Any]:
        return {
            name: array + step_of(name, context, server_round) if trains(name, context, server_round) else array
            for name, array in arrays.items()
        }

    return training(change)


def head_alone(name: str, _: Context, __: int) -> bool:
    return name in TRAINED


def inner_of(uplink: str, **settings: Any) -> Strategy:
    settings = {"fraction_evaluate": 0.0} | settings
    return EF21(**settings) if fedcomp.parse(uplink).memory.incremental else FedAvg(**settings)


def run(
    uplink: str,
    downlink: str,
    *,
    names: tuple[str, ...] = tuple(SHAPES),
    trains: Callable[[str, Context, int], bool] = head_alone,
    inner: Strategy | None = None,
    rounds: int = 4,
    grid: LocalGrid | None = None,
    **settings: Any,
) -> tuple[CompressedStrategy, LocalGrid]:
    random.seed(5)
    grid = grid or LocalGrid(app(trains), 6)
    partitions = {node: int(context.node_config["partition-id"]) for node, context in grid.contexts.items()}
    strategy = CompressedStrategy(
        inner or inner_of(uplink, fraction_train=0.5),
        uplink=fedcomp.parse(uplink),
        downlink=fedcomp.parse(downlink),
        seed=3,
        order=partitions.__getitem__,
        **settings,
    )
    strategy.start(grid, first_model(names), num_rounds=rounds)
    return strategy, grid


def bits(record: ArrayRecord, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: record[name].numpy().tobytes() for name in names}


def check_frozen(strategy: CompressedStrategy, grid: LocalGrid, names: tuple[str, ...] = FROZEN) -> None:
    """Check that these tensors have the bits of the first model, on the server and on each node; others have moved."""
    start = bits(first_model(), names)
    assert strategy.version
    assert bits(strategy.arrays, names) == start
    others = tuple(name for name in SHAPES if name not in names)
    assert bits(strategy.arrays, others) != bits(first_model(), others)
    for context in grid.contexts.values():
        replica = state_of(context).replica
        if replica is not None:
            held = replica.arrays()
            assert {name: held[name].tobytes() for name in names} == start


def test_no_auto_link_moves_a_tensor_that_no_node_trained() -> None:
    check_frozen(*run("auto", "auto"))
    check_frozen(*run("topk(density=0.1)", "balanced"))


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", sorted(set(UPLINKS) - {"auto"}))
def test_no_uplink_moves_frozen_tensors_and_they_leave_the_training_of_the_others_as_it_is_without_them(
    name: str,
) -> None:
    """The same bits, and in each message no more bytes than those that name the tensors."""
    whole, grid = run(name, "eden(bits=2)", rounds=3)
    check_frozen(whole, grid)
    alone, _ = run(name, "eden(bits=2)", names=TRAINED, rounds=3)
    assert bits(whole.arrays, TRAINED) == bits(alone.arrays, TRAINED)
    replies = sum(each.uplink_bytes > 0 for each in whole.ledger.by_round_and_node().values())
    assert whole.ledger.uplink_bytes == alone.ledger.uplink_bytes + OVERHEAD * replies


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", sorted(set(DOWNLINKS) - {"auto", "balanced"}))
def test_no_downlink_moves_frozen_tensors_and_they_leave_the_versions_of_the_others_as_they_are_without_them(
    name: str,
) -> None:
    whole, grid = run("eden(bits=2)", name, rounds=3)
    check_frozen(whole, grid)
    alone, _ = run("eden(bits=2)", name, names=TRAINED, rounds=3)
    assert bits(whole.arrays, TRAINED) == bits(alone.arrays, TRAINED)


STRATEGIES: dict[str, Strategy] = {
    "FedAvgM": flwr_strategies.FedAvgM(fraction_evaluate=0.0, server_momentum=0.9),
    "FedAdam": flwr_strategies.FedAdam(fraction_evaluate=0.0),
    "FedYogi": flwr_strategies.FedYogi(fraction_evaluate=0.0),
    "FedMedian": flwr_strategies.FedMedian(fraction_evaluate=0.0),
    "FedTrimmedAvg": flwr_strategies.FedTrimmedAvg(fraction_evaluate=0.0),
    "Krum": flwr_strategies.Krum(fraction_evaluate=0.0),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("links", [("eden(bits=2)", "eden(bits=1)"), ("stc(density=0.1)", "stc(density=0.1)")])
def test_no_strategy_moves_a_tensor_that_no_node_trained(name: str, links: tuple[str, str]) -> None:
    check_frozen(*run(*links, inner=STRATEGIES[name]))


def test_a_mean_of_equal_weights_does_not_move_them_by_its_rounding() -> None:
    class MeanInFloat32(FedAvg):
        """A strategy whose own mean of 0.1, 0.1 and 0.1 is not 0.1."""

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            _, metrics = super().aggregate_train(server_round, replies)
            records = [reply.content.array_records["arrays"] for reply in replies]
            thirds = {
                name: sum(record[name].numpy().astype(np.float32) / np.float32(len(records)) for record in records)
                for name in SHAPES
            }
            return ArrayRecord({name: Array(np.asarray(array)) for name, array in thirds.items()}), metrics

    check_frozen(*run("eden(bits=2)", "eden(bits=1)", inner=MeanInFloat32(fraction_evaluate=0.0)))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (kind, dtype)
        for kind in ("FedAvg", "FedAdam", "FedTrimmedAvg", "MajorityVote")
        for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "int64")
        if (kind, dtype) != ("FedAdam", "complex64")  # refused
    ],
)
def test_statistics_that_no_node_changed_keep_their_bits(kind: str, dtype: str) -> None:
    """A frozen backbone has BatchNorm statistics too; the mean of seven equal ones differs from them in the last bit."""
    values = np.random.default_rng(0).standard_normal((2, 200))
    numbers = (
        values[0] + 1j * values[1] if dtype == "complex64" else 2.0**60 * values[0] if dtype == "int64" else values[0]
    )
    frozen = float32_to_bfloat16(numbers.astype(np.float32)) if dtype == "bfloat16" else numbers.astype(dtype)
    first = to_record({"base.running_mean": frozen, "head": np.ones(20, np.float32)})
    kinds = vars(flwr_strategies) | {"MajorityVote": MajorityVote}
    settings = {"tau": 1e-9} if kind == "FedAdam" else {}
    strategy = CompressedStrategy(
        kinds[kind](fraction_evaluate=0.0, **settings), uplink=fedcomp.dense(), downlink=fedcomp.dense()
    )
    grid = LocalGrid(training(lambda given, *_: given | {"head": given["head"] + 1}, weight=7), 7)
    strategy.start(grid, first, num_rounds=2)
    assert strategy.ledger.refused == strategy.ledger.failed == 0
    held = strategy.publisher.replica.arrays()["base.running_mean"]
    assert held.tobytes() == frozen.tobytes()
    assert not any(frame.flags & FLAG_EXACT for frame in strategy.publisher.history.frames())


@pytest.mark.parametrize("uplink", ["dense()", "eden(bits=4)"])
def test_a_strategy_may_move_a_tensor_that_no_node_trained(uplink: str) -> None:
    """One weight is so large that the square of its change is beyond float32."""

    class Decay(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            halves = {name: Array(np.asarray(array.numpy() * 0.5)) for name, array in arrays.items()}
            return ArrayRecord(halves), metrics

    strategy, _ = run(uplink, "dense()", inner=Decay(fraction_evaluate=0.0), rounds=1)
    before, after = (record["base.weight"].numpy() for record in (first_model(), strategy.arrays))
    np.testing.assert_allclose(after, before / 2, rtol=1e-6)


def test_each_node_sends_the_tensors_that_it_trained_and_the_version_holds_those_of_all() -> None:
    def own(name: str, context: Context, _: int) -> bool:
        return name == ("base.weight", "head.weight", "head.bias")[int(context.node_config["partition-id"]) % 3]

    strategy, grid = run("eden(bits=4)", "eden(bits=4)", trains=own, inner=FedAvg(fraction_evaluate=0.0))
    check_frozen(strategy, grid, ("base.bias", "base.scale"))
    sizes = {node: each.totals.uplink_bytes for node, each in strategy.nodes.items()}
    by_partition = {int(grid.contexts[node].node_config["partition-id"]): size for node, size in sizes.items()}
    assert by_partition[0] > by_partition[1] > 3 * by_partition[2], "600, 500 and 25 entries"


@pytest.mark.sample(1)
@pytest.mark.parametrize("uplink", ["stc(density=0.02)", "topk(density=0.02)", "hierarchical(density=0.02)"])
def test_what_is_left_of_a_tensor_that_is_trained_no_more_still_goes_out(uplink: str) -> None:
    strategy, grid = run(
        uplink,
        "dense()",
        trains=lambda name, _, server_round: name == "base.bias" if server_round > 2 else name != "base.scale",
        inner=FedAvg(fraction_evaluate=0.0),
        rounds=3,
    )
    owed = [residual(grid, "head.weight")]
    for _ in range(2):
        strategy.start(grid, strategy.arrays, num_rounds=8)
        owed.append(residual(grid, "head.weight"))
    assert owed[0] > owed[1] > owed[2]


def residual(grid: LocalGrid, name: str) -> float:
    """Return the norm of what the nodes still owe of a tensor."""
    total = 0.0
    for context in grid.contexts.values():
        node = state_of(context)
        part = next(part for tensor, part in node.held.layout.parts if tensor.name == name)
        total += float(np.square(node.memory["residual"][part]).sum())
    return total


@pytest.mark.parametrize("name", ["powersgd(rank=2)", "regtopk(density=0.05)", "ef21(density=0.05)"])
def test_methods_that_look_back_at_their_last_message_follow_tensors_that_come_and_go(name: str) -> None:
    def some(tensor: str, _: Context, server_round: int) -> bool:
        return tensor in (TRAINED if server_round % 2 else ("head.weight", "base.weight"))

    strategy, grid = run(name, "dense()", trains=some, rounds=8)
    assert strategy.ledger.refused == strategy.ledger.failed == 0
    check_frozen(strategy, grid, ("base.bias", "base.scale"))


def test_local_and_tied_tensors_among_frozen_ones() -> None:
    first = first_model()
    first["tied.weight"] = first["head.weight"]
    random.seed(5)
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0),
        uplink=fedcomp.eden(bits=2),
        downlink=fedcomp.eden(bits=2),
        local=["base.scale"],
        tied=[("head.weight", "tied.weight")],
    )

    def change(arrays: Arrays, context: Context, server_round: int) -> Mapping[str, Any]:
        arrays = {"base.scale": np.full((), 2, np.float32), **arrays}
        trained = arrays["head.weight"] + step_of("head.weight", context, server_round)
        return arrays | {"head.weight": trained, "tied.weight": trained}

    strategy.start(LocalGrid(training(change), 4), first, num_rounds=4)
    assert bits(strategy.arrays, ("base.weight", "base.bias", "head.bias")) == bits(
        first, ("base.weight", "base.bias", "head.bias")
    )
    assert bits(strategy.arrays, ("head.weight",)) != bits(first, ("head.weight",))
    np.testing.assert_array_equal(strategy.arrays["head.weight"].numpy(), strategy.arrays["tied.weight"].numpy())


@pytest.mark.parametrize("uplink", ["eden(bits=2)", "stc(density=0.1)", "qsgd()"])
def test_masked_tensors_among_frozen_ones(uplink: str) -> None:
    """The mask of a tensor that nobody trains costs nothing; that of a trained one selects inside it."""
    first = first_model()
    masks = {name: np.random.default_rng(1).random(SHAPES[name]) < 0.4 for name in ("base.weight", "head.weight")}
    for name, mask in masks.items():
        first[name] = Array(first[name].numpy() * mask)
        first[name + "_mask"] = Array(np.packbits(mask.ravel()))

    def change(arrays: Arrays, context: Context, server_round: int) -> Mapping[str, Any]:
        steps = {name: step_of(name, context, server_round) for name in TRAINED}
        steps["head.weight"] = steps["head.weight"] * masks["head.weight"]
        return arrays | {name: arrays[name] + step for name, step in steps.items()}

    random.seed(5)
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.eden(bits=2)
    )
    strategy.start(LocalGrid(training(change), 4), first, num_rounds=4)
    assert strategy.ledger.refused == strategy.ledger.failed == 0
    assert bits(strategy.arrays, FROZEN) == bits(first, FROZEN)
    assert bits(strategy.arrays, TRAINED) != bits(first, TRAINED)


@pytest.mark.parametrize("buffer", [2, 6])
def test_in_async_mode_too(buffer: int) -> None:
    grid = LocalGrid(app(head_alone), 6, speeds=Speeds(slow=0.5, slowdown=4.0))
    links = ("eden(bits=2)", "eden(bits=2)")
    check_frozen(*run(*links, inner=FedAvg(fraction_evaluate=0.0), grid=grid, mode=AsyncMode(buffer=buffer)))


def test_a_round_in_which_nobody_trained_changes_nothing_and_costs_next_to_nothing() -> None:
    for uplink in ("eden(bits=2)", "signsgd()", "stc(density=0.1)", "terngrad()"):
        strategy, _ = run(uplink, "eden(bits=2)", trains=lambda *_: False, rounds=3)
        assert bits(strategy.arrays, tuple(SHAPES)) == bits(first_model(), tuple(SHAPES))
        replies = sum(each.uplink_bytes > 0 for each in strategy.ledger.by_round_and_node().values())
        assert strategy.ledger.uplink_bytes < 200 * replies, "a head, the metrics, and no body"


def test_the_first_round_says_how_many_entries_never_change(flower_log: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").setLevel(logging.INFO)
    run("eden(bits=2)", "eden(bits=2)")
    lines = [record.getMessage() for record in flower_log.records if "no node changed" in record.getMessage()]
    assert len(lines) == 1
    assert "621 of the 1,146 entries" in lines[0]
    assert "base.weight, base.bias, base.scale" in lines[0]


@pytest.mark.parametrize("counts", [True, False])
def test_the_log_names_exact_tensors_that_travel_without_having_changed(
    counts: bool, flower_log: pytest.LogCaptureFixture
) -> None:
    """As a table of positions beside a counter of BatchNorm; alone it costs nothing."""

    def change(arrays: Arrays, _: Context, __: int) -> Arrays:
        return arrays | {"w": arrays["w"] + 1} | ({"count": arrays["count"] + 1} if counts else {})

    first = {"w": np.zeros(50, np.float32), "table": np.arange(200), "count": np.zeros((), np.int64)}
    inner = FedAvg(fraction_evaluate=0.0)
    CompressedStrategy(inner).start(LocalGrid(training(change), 2), to_record(first), num_rounds=3)
    assert flower_log.text.count("no node changed 1,600 bytes of them: table; local=[...]") == counts
