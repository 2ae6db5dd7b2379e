"""Training without rounds: a version is published with every few updates, late ones count less, and nothing is lost."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAdam, FedAvg, FedMedian, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import (
    EF21,
    AsyncMode,
    Clipping,
    CompressedStrategy,
    DynamicSampling,
    LocalGrid,
    MajorityVote,
    NodeSpeed,
    RigL,
    Speeds,
    parse_mode,
)
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of
from tests.flower import toy
from tests.flower.toy import Watching, checkpoint_at, floats, state_of, sum_of_updates

NODES = 8
SPEEDS = Speeds(slow=0.3, slowdown=10.0, spread=0.3, seed=4)


def _numbers(record: ArrayRecord) -> list[float]:
    return [float(value) for array in record.values() for value in array.numpy().ravel()]


def _two_nodes(node: int, _: int) -> NodeSpeed:
    """Return the speeds of two nodes: the first takes 1 s, the second 2.5 s."""
    return NodeSpeed(compute_s=1.0 if node == 1 else 2.5)


class Counting(Watching):
    """Watching, with the number of updates in each round."""

    def __init__(self, **settings: float) -> None:
        super().__init__(**settings)
        self.updates: list[int] = []

    def aggregate_train(self, server_round: int, replies: toy.Messages) -> toy.Aggregate:
        replies = list(replies)
        self.updates.append(sum(reply.has_content() for reply in replies))
        return super().aggregate_train(server_round, replies)


def _run(
    mode: AsyncMode | None,
    inner: Strategy | None = None,
    rounds: int = 12,
    speeds: Any = None,
) -> tuple[CompressedStrategy, LocalGrid]:
    random.seed(3)
    grid = LocalGrid(toy.app(), NODES, speeds=speeds)
    inner, uplink, downlink = (
        inner or FedAvg(fraction_evaluate=0.0),
        fedcomp.stc(density=0.05),
        fedcomp.stc(density=0.1),
    )
    strategy = CompressedStrategy(inner, uplink=uplink, downlink=downlink, mode=mode)
    strategy.start(grid, toy.model(), num_rounds=rounds)
    return strategy, grid


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_two_nodes_by_hand() -> None:
    """Node 1 adds 1 each second, node 2 adds 10 each 2.5 seconds, and a version is published with each update."""

    def change(arrays: toy.Arrays, context: Any, _: int) -> dict[str, Any]:
        return {"w": arrays["w"] + np.float32(1 if context.node_id == 1 else 10)}

    grid = LocalGrid(toy.training(change), 2, speeds=_two_nodes)
    published: list[tuple[float, float]] = []
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0),
        uplink=fedcomp.dense(),
        downlink=fedcomp.dense(),
        mode=AsyncMode(buffer=1, staleness=3),
        on_round=lambda _: published.append((grid.now(), _numbers(strategy.arrays)[0])),
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=5)
    late = 2 + 10 / np.sqrt(3)  # node 2 began with version 0, and there are two others since
    first = late + 1 / np.sqrt(2)  # node 1 began with version 2; node 2 has published version 3 since
    expected = [(1.0, 1.0), (2.0, 2.0), (2.5, late), (3.0, first), (4.0, first + 1)]
    np.testing.assert_allclose(published, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("staleness", "exponent", "weight"),
    [(0, 0.5, 1.0), (1, 0.5, 0.5**0.5), (3, 0.5, 0.5), (3, 1.0, 0.25), (9, 0.0, 1.0)],
)
def test_the_weight_of_a_late_update(staleness: int, exponent: float, weight: float) -> None:
    assert AsyncMode(exponent=exponent).weight(staleness) == pytest.approx(weight, rel=1e-15)


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.one_flower
@pytest.mark.parametrize("inner", [FedAvg, FedAdam, FedMedian])
@pytest.mark.parametrize("speeds", [None, SPEEDS])
def test_one_buffer_of_all_nodes_gives_the_bits_of_rounds(inner: Any, speeds: Speeds | None) -> None:
    rounds, _ = _run(None, inner(fraction_evaluate=0.5), speeds=speeds, rounds=6)
    mode, _ = _run(AsyncMode(buffer=NODES, staleness=1), inner(fraction_evaluate=0.5), speeds=speeds, rounds=6)
    np.testing.assert_array_equal(floats(mode.arrays), floats(rounds.arrays))
    assert mode.publisher.replica.fingerprint == rounds.publisher.replica.fingerprint
    for name in ("uplink_bytes", "downlink_bytes", "catch_up_bytes", "dense_uplink_bytes", "dense_downlink_bytes"):
        assert getattr(mode.ledger, name) == getattr(rounds.ledger, name), name


def test_a_run_in_virtual_time_repeats_to_the_bit() -> None:
    (first, one), (second, two) = (_run(AsyncMode(buffer=2), speeds=SPEEDS, rounds=8) for _ in range(2))
    np.testing.assert_array_equal(floats(first.arrays), floats(second.arrays))
    assert one.now() == two.now()
    other, _ = _run(AsyncMode(buffer=2), speeds=Speeds(slow=0.3, slowdown=10.0, spread=0.3, seed=5), rounds=8)
    assert not np.array_equal(floats(other.arrays), floats(first.arrays))


def test_a_late_update_arrives_whole_in_the_end_by_hand() -> None:
    """Node 2 adds 12 once, three versions late: half of it counts, then half of the rest, with one version of node 2 each."""

    def change(arrays: toy.Arrays, context: Any, number: int) -> dict[str, Any]:
        return {"w": arrays["w"] + np.float32(12 if context.node_id == 2 and number == 1 else 0)}

    def speed(node: int, _: int) -> NodeSpeed:
        return NodeSpeed(compute_s=1.0 if node == 1 else 3.4)

    grid = LocalGrid(toy.training(change), 2, speeds=speed)
    published: list[float] = []
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0),
        uplink=fedcomp.topk(density=1.0),
        downlink=fedcomp.dense(),
        mode=AsyncMode(buffer=1, staleness=10, return_rest=True),
        on_round=lambda _: published.append(_numbers(strategy.arrays)[0]),
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=13)
    # Versions of node 1 come at 1, 2, 3, 4 ... s, those of node 2 at 3.4, 6.8 and 10.2 s: after 3, 3 and 4 others.
    late = [0.5, 0.5, 5**-0.5]
    first, second = 12 * late[0], 12 * (1 - late[0]) * late[1]
    third = (12 - first - second) * late[2]
    np.testing.assert_allclose(
        [published[3], published[7], published[12]], np.cumsum([first, second, third]), rtol=1e-5
    )


@pytest.mark.sample(1)
@pytest.mark.one_flower
@pytest.mark.parametrize(
    ("uplink", "exponent", "returns"),
    [("stc(density=0.02)", 0.0, False), ("stc(density=0.02)", 0.5, True), ("doublesqueeze(codec='random')", 1.0, True)],
)
def test_every_update_counts_once_through_faults_restarts_and_refusals(
    uplink: str, exponent: float, returns: bool, tmp_path: Path
) -> None:
    """What a node's app returned is what arrived and the residual: with the exponent 0, late updates arrive whole.

    With `return_rest`, what is missing of them is in the residual again.
    """
    random.seed(7)
    faults, checkpoint = random.Random(8), tmp_path / "checkpoint"
    mode = AsyncMode(buffer=3, staleness=2, exponent=exponent, return_rest=returns)
    grid = LocalGrid(toy.app(), 12, speeds=Speeds(slow=0.2, slowdown=8.0, spread=0.5, seed=1))
    watching = Watching(fraction_train=0.5, fraction_evaluate=0.0)

    def strategy() -> CompressedStrategy:
        up, down = fedcomp.parse(uplink), fedcomp.stc(density=0.05)
        return CompressedStrategy(
            watching,
            uplink=up,
            downlink=down,
            checkpoint=checkpoint_at(checkpoint),
            mode=mode,
        )

    server = strategy()
    kinds = [fault for fault in Fault if fault is not Fault.FORGET]
    for part in range(4):
        for node in grid.get_node_ids():
            grid.order(node, *(faults.choice([*kinds, *[None] * 8]) for _ in range(3)))  # type: ignore[arg-type]
        if part == 2:
            server = strategy()
            server.load(checkpoint)
        server.start(grid, toy.model(), num_rounds=8, timeout=30.0)
    assert server.ledger.total().refused > 5
    assert server.ledger.total().missing > 5

    for node in grid.get_node_ids():
        grid.faults[node].clear()
    watching.fraction_train = 1.0
    finish = CompressedStrategy(
        watching,
        uplink=fedcomp.parse(uplink),
        downlink=fedcomp.stc(density=0.05),
        checkpoint=checkpoint_at(checkpoint),
    )
    finish.load(checkpoint)
    finish.start(grid, toy.model(), num_rounds=2)
    for node, context in grid.contexts.items():
        state, target = state_of(context), sum_of_updates(context)
        np.testing.assert_allclose(
            watching.acked[node] + state.memory["residual"].astype(np.float64),
            target,
            atol=1e-4 * np.abs(target).max(),
            err_msg=f"node {node}",
        )
    moved = floats(finish.arrays) - floats(toy.model())
    kept = finish.publisher.memory["residual"]
    np.testing.assert_allclose(moved + kept, watching.means, atol=1e-4 * np.abs(watching.means).max())


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_an_update_beyond_the_bound_is_refused_and_goes_back_to_its_node() -> None:
    def slow(node: int, _: int) -> NodeSpeed:
        return NodeSpeed(compute_s=4.5 if node == NODES else 1.0)

    # The slow node answers when seven others have published four versions, more than are allowed.
    inner = Counting(fraction_evaluate=0.0)
    strategy, grid = _run(AsyncMode(buffer=NODES - 1, staleness=3), inner, rounds=5, speeds=slow)
    assert strategy.ledger.by_node()[NODES].refused == 1
    assert strategy.nodes[NODES].heard == 5
    assert inner.updates == 5 * [NODES - 1], "the update that is too old fills no buffer"
    assert NODES not in inner.acked
    strategy.start(grid, toy.model(), num_rounds=1)
    state, asked = state_of(grid.contexts[NODES]), sum_of_updates(grid.contexts[NODES])
    sent = asked - state.memory["residual"]
    assert np.count_nonzero(np.abs(sent) > 1e-5) <= 52, (
        "all but the entries of the newest update has stayed on the node"
    )


def test_a_node_that_does_not_answer_is_asked_again_after_the_timeout() -> None:
    grid = LocalGrid(toy.app(), 3, speeds=lambda *_: NodeSpeed(compute_s=1.0))
    grid.order(2, Fault.LOSE_REPLY)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), mode=AsyncMode(buffer=1))
    strategy.start(grid, toy.model(), num_rounds=12, timeout=3.5)
    assert strategy.nodes[2].totals.missing == 1
    assert (strategy.nodes[2].version or 0) > 0
    assert strategy.ledger.total().failed == 0


def test_a_buffer_that_nobody_can_fill_does_not_wait_for_ever() -> None:
    strategy, grid = _run(AsyncMode(buffer=2 * NODES), rounds=3, speeds=SPEEDS)
    assert strategy.version == 3
    assert grid.now() < 200


def test_errors_of_nodes_fill_no_buffer() -> None:
    def change(arrays: toy.Arrays, context: Any, _: int) -> dict[str, Any]:
        if context.node_id == 1:
            raise RuntimeError("on request")
        return {name: array + np.ones((), array.dtype) for name, array in arrays.items()}

    grid = LocalGrid(toy.training(change), 3, speeds=lambda node, _: NodeSpeed(compute_s=float(node)))
    inner = Counting(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, mode=AsyncMode(buffer=2))
    strategy.start(grid, toy.model(), num_rounds=4)
    assert inner.updates == [2, 2, 2, 2]
    assert strategy.nodes[1].totals.failed > 0


def test_as_many_nodes_train_at_a_time_as_the_inner_strategy_picks() -> None:
    training: set[int] = set()
    most = 0

    class Watched(LocalGrid):
        def push_messages(self, messages: Any) -> Any:
            nonlocal most
            messages = list(messages)
            training.update(message.metadata.dst_node_id for message in messages)
            most = max(most, len(training))
            return super().push_messages(messages)

        def pull_messages(self, message_ids: Any) -> Any:
            replies = list(super().pull_messages(message_ids))
            training.difference_update(reply.metadata.src_node_id for reply in replies)
            return replies

    random.seed(1)
    grid = Watched(toy.app(), 20, speeds=SPEEDS)
    strategy = CompressedStrategy(FedAvg(fraction_train=0.4, fraction_evaluate=0.0), mode=AsyncMode(buffer=2))
    strategy.start(grid, toy.model(), num_rounds=12)
    assert most == 8
    assert len(training) >= 6, "they go on training when the last version is published"


def test_evaluation_goes_to_nodes_that_do_not_train() -> None:
    strategy, _ = _run(AsyncMode(buffer=2), FedAvg(fraction_evaluate=1.0), rounds=12, speeds=SPEEDS)
    assert strategy.ledger.total().refused == 0
    assert strategy.version == 12


def test_exact_tensors_that_a_late_node_leaves_alone_stay_as_published() -> None:
    """Node 1 counts its updates, node 2 does not."""

    def change(arrays: toy.Arrays, context: Any, _: int) -> dict[str, Any]:
        counter = arrays["norm.num_batches_tracked"] + (1 if context.node_id == 1 else 0)
        return arrays | {"layer.bias": arrays["layer.bias"] + np.float32(1), "norm.num_batches_tracked": counter}

    grid = LocalGrid(toy.training(change), 2, speeds=_two_nodes)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), mode=AsyncMode(buffer=1))
    strategy.start(grid, toy.model(), num_rounds=7)  # node 2 answers at 2.5 and 5 s, node 1 at 1, 2, 3, 4 and 5 s
    assert strategy.arrays["norm.num_batches_tracked"].numpy() == 3 + 5


def test_exact_tensors_move_as_far_as_late_nodes_moved_them() -> None:
    """Each node adds 1 to the counter; a version with one update moves it by 1, wherever that update began."""
    grid = LocalGrid(toy.app(), 2, speeds=_two_nodes)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), mode=AsyncMode(buffer=1))
    strategy.start(grid, toy.model(), num_rounds=7)
    assert strategy.arrays["norm.num_batches_tracked"].numpy() == 3 + 7


@pytest.mark.parametrize("mode", [AsyncMode(buffer=2), AsyncMode(buffer=3, exponent=0.0), AsyncMode(1, exponent=2.0)])
def test_statistics_stay_between_what_was_published_and_what_nodes_sent(mode: AsyncMode) -> None:
    """Late nodes start from the variance 1 of the first model; the sum of their changes to it would be negative."""

    def change(arrays: toy.Arrays, _: Context, __: int) -> toy.Arrays:
        return {"w": arrays["w"] + np.float32(1), "norm.running_var": np.full(3, 0.01, np.float32)}

    first = {"w": np.zeros(50, np.float32), "norm.running_var": np.ones(3, np.float32)}
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), mode=mode)
    variances: list[float] = []

    def evaluate(_: int, record: ArrayRecord) -> None:
        variances.extend(record["norm.running_var"].numpy().tolist())

    grid = LocalGrid(toy.training(change), NODES, speeds=SPEEDS)
    strategy.start(grid, ArrayRecord({name: Array(array) for name, array in first.items()}), 20, evaluate_fn=evaluate)
    assert 0.01 - 1e-6 <= min(variances) < max(variances) == 1
    assert variances == sorted(variances, reverse=True), "no late node moves it back"


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sync", None),
        ("async", AsyncMode()),
        ("async(5)", AsyncMode(5)),
        ("async(buffer=4, staleness=2, exponent=0)", AsyncMode(4, 2, 0)),
        ("async(buffer=4, return_rest=True)", AsyncMode(4, return_rest=True)),
    ],
)
def test_texts(text: str, expected: AsyncMode | None) -> None:
    mode = parse_mode(text)
    assert mode == expected
    assert mode is None or parse_mode(str(mode)) == mode


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("async(buffer=0)", "buffer is 0"),
        ("async(staleness=0)", "staleness is 0"),
        ("async(exponent=-1)", "exponent is -1"),
        ("async(size=3)", "buffer, staleness, exponent"),
        ("async(return_rest=1)", "return_rest is 1"),
        ("rounds", "async, sync"),
        ("async(", "async\\("),
    ],
)
def test_bad_texts_are_one_sentence(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        parse_mode(text)


def _private(inner: Strategy) -> Strategy:
    return DifferentialPrivacyClientSideFixedClipping(inner, 0.0, 1.0, num_sampled_clients=AsyncMode().buffer)


@pytest.mark.parametrize("inner", [EF21(), RigL(), DynamicSampling(EF21(), beta=0.1), _private(RigL())])
def test_strategies_that_need_rounds_are_refused(inner: Strategy) -> None:
    uplink = fedcomp.ef21() if reply_use_of(inner) is ReplyUse.INCREMENTS else fedcomp.stc()
    CompressedStrategy(inner, uplink=uplink)
    with pytest.raises(ValueError, match="rounds"):
        CompressedStrategy(inner, uplink=uplink, mode=AsyncMode())


def test_differential_privacy_makes_noise_for_a_buffer_of_updates() -> None:
    def strategy(count: int) -> CompressedStrategy:
        noisy = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, num_sampled_clients=count)
        return CompressedStrategy(noisy, mode=AsyncMode(buffer=4))

    strategy(4)
    with pytest.raises(
        ValueError, match="makes noise for 10 updates, and a version has those of 4; num_sampled_clients=4"
    ):
        strategy(10)


@pytest.mark.parametrize(
    ("inner", "uplink", "found"),
    [
        (FedAvg(), fedcomp.eden(bits=1), r"uplink eden\(bits=1\) keeps nothing"),
        (FedAvg(), None, r"uplink auto\(\) keeps nothing"),
        (MajorityVote(), fedcomp.stc(), "MajorityVote counts late votes whole"),
        (_private(MajorityVote()), fedcomp.stc(), "MajorityVote counts late votes whole"),
    ],
)
def test_a_rest_that_nobody_could_keep_is_refused(inner: Strategy, uplink: Any, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        CompressedStrategy(inner, uplink=uplink, mode=AsyncMode(return_rest=True))


def test_queries_of_a_strategy_wait_for_all_their_answers() -> None:
    app, answered = toy.app(), list[list[int]]()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict({"found": MetricRecord({"node": context.node_id})}), reply_to=message)

    class Asking(FedAvg):
        def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Grid) -> Any:
            messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in grid.get_node_ids()]
            replies = grid.send_and_receive(messages, timeout=60)
            answered.append(sorted(reply.metadata.src_node_id for reply in replies))
            return super().configure_evaluate(server_round, arrays, config, grid)

    grid = LocalGrid(app, 5, speeds=Speeds(slow=0.3, slowdown=10.0, seed=4))
    strategy = CompressedStrategy(Asking(fraction_evaluate=1.0), mode=AsyncMode(buffer=2))
    strategy.start(grid, toy.model(), num_rounds=4)
    assert answered == [[1, 2, 3, 4, 5]] * 4
    assert strategy.ledger.total().refused == 0


@pytest.mark.parametrize("mode", ["async(buffer=3)", 3, True])
def test_a_mode_of_another_type_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="an AsyncMode is needed"):
        CompressedStrategy(FedAvg(), mode=mode)


def test_a_reply_that_comes_twice_fills_one_place() -> None:
    inner = Counting(fraction_evaluate=0.0)
    grid = LocalGrid(toy.app(), 4, speeds=lambda node, _: NodeSpeed(compute_s=float(node)))
    for node in grid.get_node_ids():
        grid.order(node, Fault.DOUBLE_REPLY, Fault.DELIVER_TWICE)
    strategy = CompressedStrategy(inner, mode=AsyncMode(buffer=2))
    strategy.start(grid, toy.model(), num_rounds=6)
    assert inner.updates == 6 * [2]
    assert strategy.ledger.total().refused > 4


def test_a_model_without_versions_is_refused() -> None:
    trees = ArrayRecord({"trees": Array(np.arange(5, dtype=np.uint8))})
    strategy = CompressedStrategy(FedAvg(), mode=AsyncMode())
    with pytest.raises(ValueError, match="async"):
        strategy.start(LocalGrid(toy.app(), 2), trees, num_rounds=1)


def test_damping_is_applied_after_the_norm_is_bounded() -> None:
    """A late update of norm 20 is clipped to 2, and then counts half."""

    def change(arrays: toy.Arrays, context: Any, _: int) -> dict[str, NDArray[Any]]:
        step = np.zeros(4, np.float32)
        step[0] = 20 if context.node_id == 2 else 0
        return {"w": arrays["w"] + step}

    grid = LocalGrid(toy.training(change), 2, speeds=lambda node, _: NodeSpeed(compute_s=1.0 if node == 1 else 3.5))
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0),
        uplink=fedcomp.dense(),
        downlink=fedcomp.dense(),
        clipping=Clipping(norm=2),
        mode=AsyncMode(buffer=1),
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(4, np.float32))}), num_rounds=4)
    assert _numbers(strategy.arrays)[0] == pytest.approx(1.0)
