"""A reply is validated completely, also against the others, before any of it counts; updates count only if aggregated."""

import random
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedAvgM,
    FedMedian,
    Krum,
    Strategy,
)

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import GROWTH, Clipping, CompressedStrategy, CompressionMod, LocalGrid, RigL, records
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.server.rounds import replies
from fedcomp.flower.server.rounds.validated_reply import ReceivedReply
from fedcomp.flower.strategies.reply_use import ReplyDeclaration, ReplyUse
from fedcomp.sync import Undecoded
from fedcomp.wire.codec_ids import codec_by_id
from fedcomp.wire.frame import SECONDS, parse_single_frame
from tests.flower.attacks import (
    MISFITS,
    NODES,
    ODD_METRICS,
    ONLY_MEANS_TAKE,
    Change,
    Meddling,
    copied,
    frame_of,
    held,
    set_record,
    update_of,
    without_metrics,
)
from tests.flower.toy import (
    Aggregate,
    Messages,
    Recording,
    Watching,
    add_update,
    app,
    floats,
    model,
    state_of,
    sum_of_updates,
)

VALIDATE = replies.ReplyValidator.validate
INNER: dict[str, Callable[[], FedAvg]] = {
    "FedAvg": lambda: FedAvg(fraction_train=1.0, fraction_evaluate=0.0),
    "FedMedian": lambda: FedMedian(fraction_train=1.0, fraction_evaluate=0.0),
    "Krum": lambda: Krum(fraction_train=1.0, fraction_evaluate=0.0, num_malicious_nodes=1),
    "RigL": lambda: RigL(fraction_train=1.0, fraction_evaluate=0.0),
}


def _trained(inner: str, change: Change) -> tuple[Meddling, CompressedStrategy]:
    random.seed(1)
    grid, strategy = Meddling(change), CompressedStrategy(INNER[inner](), uplink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=2)
    return grid, strategy


@cache
def _with_a_silent_node(inner: str) -> tuple[Meddling, CompressedStrategy]:
    return _trained(inner, lambda reply: [])


@pytest.mark.sample(22)
@pytest.mark.one_flower
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", MISFITS)
def test_a_reply_that_does_not_fit_is_dropped_counted_and_logged_and_the_round_continues(
    name: str, inner: str, flower_log: pytest.LogCaptureFixture
) -> None:
    if name == ONLY_MEANS_TAKE and inner == "FedAvg":
        pytest.skip("a strategy that only averages does not read it")
    grid, strategy = _trained(inner, MISFITS[name])
    _, calm = _with_a_silent_node(inner)
    np.testing.assert_array_equal(
        floats(strategy.arrays), floats(calm.arrays), err_msg="as if the node had been silent"
    )
    assert strategy.ledger.refused == strategy.ledger.by_node()[2].refused == 2
    assert flower_log.text.count("the reply of node 2 is dropped") == 2
    _conserved(grid, Watching(), node=2)


def _metrics(inner: str, change: Change) -> MetricRecord:
    kind = Recording if inner == "an override" else INNER[inner]
    strategy = CompressedStrategy(kind(), uplink=fedcomp.stc(density=0.1))
    result = strategy.start(Meddling(change), model(), num_rounds=2)
    assert (strategy.ledger.refused, strategy.failed_rounds, strategy.version) == (0, (), 2)
    return result.train_metrics_clientapp[2]


@cache
def _metrics_as_sent(inner: str) -> MetricRecord:
    return _metrics(inner, lambda reply: [reply])


@pytest.mark.sample(10)
@pytest.mark.parametrize("inner", [*INNER, "an override"])
@pytest.mark.parametrize("name", ODD_METRICS)
def test_an_update_with_odd_metrics_counts_and_the_metrics_of_the_others_are_as_they_were(
    name: str, inner: str, flower_log: pytest.LogCaptureFixture
) -> None:
    loss = _metrics(inner, ODD_METRICS[name])
    assert loss.keys() == _metrics_as_sent(inner).keys() == {"loss"}
    weights, values = [1 + node % 3 for node in (1, 3, 4, 5)], [1.0, 3.0, 4.0, 5.0]
    mean = np.average(values, weights=weights)
    if inner != "Krum":  # which selects one
        assert loss["loss"] == pytest.approx(mean)
    assert flower_log.text.count("the metrics of nodes 1, 2, 3, 4, 5 differ") == 2


def test_metrics_of_another_name_at_each_node_cost_no_update(flower_log: pytest.LogCaptureFixture) -> None:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        reply.content["metrics"] = MetricRecord({"num-examples": 1, f"loss{context.node_id}": 1.0})
        return reply

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    result = strategy.start(LocalGrid(client_app, 3), model(), num_rounds=2)
    assert (strategy.version, strategy.ledger.refused) == (2, 0)
    assert result.train_metrics_clientapp[2] == {}
    assert "'loss1', 'loss2', 'loss3': dropped" in flower_log.text


@pytest.mark.parametrize("is_own", [False, True])
def test_a_second_metric_record_of_one_node_costs_no_update_where_the_strategy_may_read_it(
    is_own: bool, flower_log: pytest.LogCaptureFixture
) -> None:
    """Flower's own code takes one MetricRecord in each reply; that of a user may take several."""

    def with_more(reply: Message) -> list[Message]:
        reply.content["gpu"] = MetricRecord({"memory": 1.0})
        return [reply]

    inner = Recording() if is_own else FedAvg(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(Meddling(with_more), model(), num_rounds=2)
    assert strategy.ledger.refused == (0 if is_own else 2)
    assert flower_log.text.count("the MetricRecord 'gpu' of node 2 is dropped") == (2 if is_own else 0)


@pytest.mark.parametrize(
    ("records", "used"), [("tg tn gn", 2), ("tge tg tg te te", 3), ("tgn tg tn gn tg", 3), ("t g", 2), ("tg t t", 3)]
)
def test_metric_records_that_most_replies_have_together_stay(records: str, used: int) -> None:
    """Each of several may be in most replies, and no reply may hold all of them."""
    client_app, sets = ClientApp(mods=[CompressionMod()]), records.split()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        del reply.content["metrics"]
        for name in (*sets[int(context.node_config["partition-id"])], "u"):
            reply.content[name] = MetricRecord({"number": 1})
        return reply

    class Own(FedAvg):
        """FedAvg that takes the first model, and reads no metrics."""

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            return next(cast(ArrayRecord, each.content["arrays"]) for each in replies if each.has_content()), None

    inner = Own(fraction_evaluate=0.0, weighted_by_key="number")
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(LocalGrid(client_app, len(sets)), model(), num_rounds=1)
    assert len(sets) - strategy.ledger.refused == used


@pytest.mark.parametrize("inner", INNER)
def test_the_key_of_a_model_and_of_metrics_may_differ_between_nodes(inner: str) -> None:
    def renamed(reply: Message) -> list[Message]:
        for old, new in (("arrays", "model"), ("metrics", "m")):
            reply.content[new] = reply.content.pop(old)
        return [reply]

    finals = []
    for change in (lambda reply: [reply], renamed):
        random.seed(1)
        strategy = CompressedStrategy(INNER[inner](), uplink=fedcomp.stc(density=0.1))
        strategy.start(Meddling(change), model(), num_rounds=2)
        finals.append(floats(strategy.arrays))
        assert strategy.ledger.refused == 0
    np.testing.assert_array_equal(finals[0], finals[1])


class Unlike(FedAvg):
    """FedAvg that reads a record of each reply: from those that have one, or, if it is `strict`, from all."""

    def __init__(self, *, strict: bool) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.strict, self.seen = strict, list[int]()

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        for reply in replies:
            if reply.has_content():
                if self.strict or "control" in reply.content:
                    del reply.content["control"]
                self.seen.append(reply.metadata.src_node_id)
        return super().aggregate_train(server_round, replies)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_strategy_that_handles_a_missing_record_gets_all_nodes(compressed: bool) -> None:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        if context.node_id != 1:
            reply.content["control"] = ArrayRecord({"c": Array(np.ones(3, np.float32))})
        return reply

    chosen = {"control": fedcomp.dense()} if compressed else None
    lenient = Unlike(strict=False)
    strategy = CompressedStrategy(lenient, records=chosen)
    strategy.start(LocalGrid(client_app, 2), model(), num_rounds=3)
    assert (strategy.version, strategy.ledger.refused) == (3, 0)
    assert sorted(lenient.seen) == [1] * 3 + [2] * 3
    strict = Unlike(strict=True)
    strategy = CompressedStrategy(strict, records=chosen)
    strategy.start(LocalGrid(client_app, 3), model(), num_rounds=3)
    assert strategy.failed_rounds == (1,), "then the nodes that lack it are left out"
    assert (strategy.version, strategy.ledger.by_node()[1].refused) == (2, 2)


@pytest.mark.sample(33)
@pytest.mark.one_flower
@pytest.mark.parametrize("inner", ["FedAvg", "FedMedian", "RigL"])
@pytest.mark.parametrize("name", MISFITS)
def test_a_lone_reply_that_does_not_fit_does_not_end_the_run(name: str, inner: str) -> None:
    kind = type(INNER[inner]())
    strategy = CompressedStrategy(kind(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0))
    alone_it_fits = name == ONLY_MEANS_TAKE and inner == "FedAvg"
    with nullcontext() if alone_it_fits else pytest.raises(NoUpdateError, match="in 2 rounds"):  # at the end
        strategy.start(Meddling(MISFITS[name], node=1, nodes=1), model(), num_rounds=2)
    assert (strategy.ledger.refused, strategy.version) == ((0, 2) if alone_it_fits else (2, 0))


def test_a_record_that_the_strategy_names_is_let_through() -> None:
    reports = set_record(GROWTH, ArrayRecord({"w": Array(np.ones(3))}))
    strategy = CompressedStrategy(RigL(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0))
    strategy.start(Meddling(reports, node=1, nodes=1), model(), num_rounds=2)
    assert (strategy.ledger.refused, strategy.version) == (0, 2)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (MetricRecord({"num-examples": -12, "sum": 1.0}), "weight 'num-examples' is -12"),
        (MetricRecord({"num-examples": float("nan"), "sum": 1.0}), "is nan"),
        (MetricRecord({"num-examples": [1], "sum": 1.0}), r"is \[1\]"),
        (MetricRecord({"sum": 1.0}), "no 'num-examples'"),
        (None, "0 MetricRecords"),
    ],
)
@pytest.mark.parametrize("nodes", [1, NODES])
def test_an_evaluation_that_cannot_be_weighed_is_dropped(
    record: MetricRecord | None, reason: str, nodes: int, flower_log: pytest.LogCaptureFixture
) -> None:
    change = without_metrics if record is None else set_record("metrics", record)
    strategy = CompressedStrategy(FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1))
    grid = Meddling(change, node=1, kind="evaluate", nodes=nodes)
    result = strategy.start(grid, model(), num_rounds=2)
    assert strategy.ledger.by_node()[1].refused == 2
    assert re.search(reason, flower_log.text)
    assert (2 in result.evaluate_metrics_clientapp) == (nodes > 1)


def test_evaluations_that_all_weigh_nothing_are_dropped() -> None:
    change = set_record("metrics", MetricRecord({"num-examples": 0, "sum": 1.0}))
    strategy = CompressedStrategy(FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1))
    result = strategy.start(Meddling(change, node=1, kind="evaluate", nodes=1), model(), num_rounds=2)
    assert not result.evaluate_metrics_clientapp
    strategy = CompressedStrategy(FedAvg())
    result = strategy.start(Meddling(change, node=1, kind="evaluate"), model(), num_rounds=2)
    assert strategy.ledger.refused == 0, "beside others, a weight of 0 is one of the possible weights"
    assert 2 in result.evaluate_metrics_clientapp


def test_evaluations_that_weigh_nothing_reach_a_metrics_function_of_the_users_own() -> None:
    seen: list[int] = []

    def count(contents: list[RecordDict], _: str) -> MetricRecord:
        seen.append(len(contents))
        return MetricRecord({"count": len(contents)})

    change = set_record("metrics", MetricRecord({"num-examples": 0, "sum": 1.0}))
    strategy = CompressedStrategy(FedAvg(evaluate_metrics_aggr_fn=count))
    strategy.start(Meddling(change, node=0, kind="evaluate"), model(), num_rounds=1)
    assert seen == [NODES]


def test_a_lone_reply_without_metrics_does_not_end_a_strategy_that_declares_the_mean() -> None:
    class Declared(FedAvg, ReplyDeclaration):
        reply_use = ReplyUse.MEAN

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            return super().aggregate_train(server_round, replies)

    strategy = CompressedStrategy(Declared(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0))
    with pytest.raises(NoUpdateError, match="in 2 rounds; .*0 MetricRecords"):
        strategy.start(Meddling(without_metrics, node=1, nodes=1), model(), num_rounds=2)
    assert strategy.ledger.refused == 2


@pytest.mark.parametrize("inner", INNER)
def test_an_app_that_does_not_fit_the_strategy_is_named_in_the_first_round(inner: str) -> None:
    unweighted = ClientApp(mods=[CompressionMod()])

    @unweighted.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        if cast(int, cast(ConfigRecord, message.content["config"])["server-round"]) >= first:
            reply.content["metrics"] = MetricRecord({"examples": 1})
        return reply

    strategy, first = CompressedStrategy(INNER[inner]()), 1
    with pytest.raises(
        ValueError, match="all 5 nodes are dropped; of the last one, its metrics hold no 'num-examples'"
    ):
        strategy.start(LocalGrid(unweighted, NODES), model(), num_rounds=2)
    strategy, first = CompressedStrategy(INNER[inner]()), 2
    strategy.start(LocalGrid(unweighted, NODES), model(), num_rounds=2)
    assert (strategy.version, strategy.ledger.refused) == (1, NODES), "an app that has worked once does not end the run"


def _twice(reply: Message) -> list[Message]:
    without_metrics(reply)
    again = Message(RecordDict(dict(reply.content.items())), reply_to=reply)
    again.metadata.__dict__.update(reply.metadata.__dict__)
    return [reply, again]


def test_one_node_that_replies_twice_is_not_taken_for_two() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(Meddling(_twice, node=1, nodes=2), model(), num_rounds=2)
    assert strategy.version == 2


def test_an_app_that_has_worked_before_a_restart_does_not_end_the_run(tmp_path: Path) -> None:
    first = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    first.start(LocalGrid(app(), 2), model(), num_rounds=1)
    first.save(tmp_path / "state")
    second = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    second.load(tmp_path / "state")
    second.start(Meddling(without_metrics, node=0, nodes=2), second.arrays, num_rounds=2)
    assert second.ledger.refused == 4, "each node asks for a key frame, and then replies without metrics"


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_node_whose_replies_are_dropped_holds_the_version_nevertheless(kind: str) -> None:
    """So it gets the next delta, and no key frame in each round."""
    stc = fedcomp.stc(density=0.01)
    strategy = CompressedStrategy(FedAvg(), uplink=stc, downlink=stc)
    strategy.start(Meddling(without_metrics, node=1, kind=kind), model(), num_rounds=6)
    totals = strategy.ledger.by_node()
    assert totals[1].refused == 6
    assert totals[1].downlink_bytes < 1.2 * totals[2].downlink_bytes


def test_a_strategy_of_the_users_own_may_complete_the_replies() -> None:
    class Completing(Strategy):
        """Counts each reply as one example."""

        def __init__(self) -> None:
            self.inner = FedAvg(fraction_evaluate=0.0)

        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            return self.inner.configure_train(server_round, arrays, config, grid)

        def configure_evaluate(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Messages:
            return self.inner.configure_evaluate(server_round, arrays, config, grid)

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            replies = list(replies)
            for reply in replies:
                reply.content["metrics"] = MetricRecord({"num-examples": 1})
            return self.inner.aggregate_train(server_round, replies)

        def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
            return self.inner.aggregate_evaluate(server_round, replies)

        def summary(self) -> None:
            """Say nothing."""

    strategy = CompressedStrategy(Completing())
    strategy.start(Meddling(without_metrics, node=0, nodes=2), model(), num_rounds=2)
    assert (strategy.version, strategy.ledger.refused) == (2, 0)


def test_under_server_side_privacy_each_reply_holds_the_model_alone() -> None:
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    strategy = CompressedStrategy(DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, 1))
    with pytest.raises(NoUpdateError, match="in 2 rounds; .*the strategy reads only the model"):
        strategy.start(Meddling(MISFITS[ONLY_MEANS_TAKE], node=1, nodes=1), model(), num_rounds=2)
    assert strategy.ledger.refused == 2


def test_an_evaluation_with_other_metrics_counts_by_those_that_it_has() -> None:
    change = set_record("metrics", MetricRecord({"num-examples": 1, "else": 1.0}))
    strategy = CompressedStrategy(FedAvg(fraction_train=1.0, fraction_evaluate=1.0))
    result = strategy.start(Meddling(change, kind="evaluate"), model(), num_rounds=2)
    assert strategy.ledger.refused == 0
    assert result.evaluate_metrics_clientapp[2].keys() == {"sum"}


def test_a_message_can_be_answered_only_once() -> None:
    def both(reply: Message) -> list[Message]:
        other = copied(reply)
        other.content["arrays"] = records.pack(held(frame_of(reply)).to_bytes())
        return [reply, other]

    inner = Recording()
    strategy = CompressedStrategy(inner)
    strategy.start(Meddling(both), model(), num_rounds=1)
    assert [reply.metadata.src_node_id for reply in inner.replies if reply.has_content()] == [1, 2, 3, 4, 5]
    assert strategy.ledger.by_node()[2].refused == 1


def _conserved(grid: LocalGrid, inner: Watching, node: int) -> None:
    """Check that the sum of the updates is what arrived, plus the residual, plus what is pending."""
    state = state_of(grid.contexts[node])
    frame = parse_single_frame(state.pending)
    end = len(frame.payload) - state.held.layout.exact_size * (frame.flags & 1)
    pending = codec_by_id(frame.codec).decode(frame.payload[SECONDS.size : end]).dense().astype(np.float64)
    acked = inner.acked.get(node, 0.0)
    target = sum_of_updates(grid.contexts[node])
    np.testing.assert_allclose(acked + state.memory["residual"] + pending, target, atol=1e-5)


def test_an_evaluate_function_that_returns_the_model_loses_no_mass() -> None:
    talkative = app()

    @talkative.evaluate("arrays")
    def evaluate(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        shifted = ArrayRecord({name: Array(np.asarray(array.numpy() + 1)) for name, array in arrays.items()})
        content = RecordDict({"arrays": shifted, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    class Evaluating(Watching):
        def configure_evaluate(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Messages:
            for message in super().configure_evaluate(server_round, arrays, config, grid):
                yield Message(message.content, message.metadata.dst_node_id, "evaluate.arrays")

    grid = LocalGrid(talkative, NODES)
    inner = Evaluating(fraction_train=1.0, fraction_evaluate=1.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=4)
    assert strategy.ledger.refused == 0
    for node, context in grid.contexts.items():
        state = state_of(context)
        target = sum_of_updates(context)
        np.testing.assert_allclose(inner.acked[node] + state.memory["residual"], target, atol=1e-5)


@pytest.mark.parametrize("why", ["weights of zero", "a strategy that gives up"])
def test_updates_that_are_not_aggregated_go_back_to_their_nodes(why: str) -> None:
    weightless = app()

    class GivingUp(Watching):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            return None, None

    inner: FedAvg
    if why == "weights of zero":
        weightless = ClientApp(mods=[CompressionMod()])

        @weightless.train()
        def train(message: Message, context: Context) -> Message:
            return _step(message, context, weight=0)

        inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    else:
        inner = GivingUp(fraction_train=1.0, fraction_evaluate=0.0)
    grid = LocalGrid(weightless, 2)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1))
    with pytest.raises(NoUpdateError, match="its weight is 0") if why == "weights of zero" else nullcontext():
        strategy.start(grid, model(), num_rounds=3)
    assert strategy.version == 0
    for node in (1, 2):
        _conserved(grid, Watching(), node)


def _step(message: Message, context: Context, weight: int) -> Message:
    given = cast(ArrayRecord, message.content["arrays"])
    trained = ArrayRecord(
        {name: Array(np.asarray(array.numpy() + array.numpy().dtype.type(1))) for name, array in given.items()}
    )
    add_update(context, floats(trained) - floats(given))
    content = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": weight})})
    return Message(content, reply_to=message)


def test_of_two_fitting_records_the_one_under_the_models_key_is_compressed() -> None:
    scaffold = ClientApp(mods=[CompressionMod()])

    @scaffold.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        reply.content["control"] = model()
        return reply

    seen: list[list[str]] = []

    class Scaffold(FedAvg):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            replies = list(replies)
            seen.extend(sorted(reply.content.array_records) for reply in replies)
            for reply in replies:
                del reply.content["control"]
            return super().aggregate_train(server_round, replies)

    strategy = CompressedStrategy(Scaffold(fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    strategy.start(LocalGrid(scaffold, 2), model(), num_rounds=1)
    assert seen == [["arrays", "control"]] * 2
    control = sum(len(array.data) for array in model().values())
    assert strategy.ledger.uplink_bytes < 2 * (control + 400)
    assert strategy.ledger.dense_uplink_bytes == 4 * control


def test_a_repeated_reply_has_the_same_key() -> None:
    renaming = ClientApp(mods=[CompressionMod()])

    @renaming.train()
    def train(message: Message, context: Context) -> Message:
        reply = _step(message, context, weight=1)
        content = RecordDict({"trained": reply.content["arrays"], "metrics": reply.content["metrics"]})
        return Message(content, reply_to=message)

    class LosingTheFirst(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            return list({reply.metadata.src_node_id: reply for reply in replies}.values())

    grid = LosingTheFirst(renaming, 3)
    grid.order(2, Fault.DELIVER_TWICE)
    strategy = CompressedStrategy(FedMedian(fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=1)
    assert strategy.version == 1
    assert strategy.ledger.refused == 0


def test_a_second_record_equal_to_the_model_is_left_alone() -> None:
    zero = ArrayRecord({"w": Array(np.zeros(9, np.float32))})

    class Control(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            for message in super().configure_train(server_round, arrays, config, grid):
                message.content["a-control"] = ArrayRecord({"w": Array(np.zeros(9, np.float32))})
                yield message

    adding = ClientApp(mods=[CompressionMod()])

    @adding.train()
    def train(message: Message, context: Context) -> Message:
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy() + 1
        content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "m": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    strategy = CompressedStrategy(Control(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    result = strategy.start(LocalGrid(adding, 2), zero, num_rounds=2)
    np.testing.assert_allclose(result.arrays["w"].numpy(), np.full(9, 2), rtol=1e-6)


def test_the_downlink_may_change_between_rounds_and_the_next_version_brings_its_residual() -> None:
    grid = LocalGrid(app(), 3)
    inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, downlink=fedcomp.stc(density=0.05))
    strategy.start(grid, model(), num_rounds=2)
    assert np.abs(strategy.publisher.memory["residual"]).max() > 0
    origin = strategy.publisher.replica.origin
    assert origin is not None
    strategy.downlink = fedcomp.dense()
    strategy.start(grid, model(), num_rounds=1)
    rest = strategy.publisher.memory["residual"]
    np.testing.assert_array_equal(rest, origin.rounded_off(), "which comes where the steps on the grid end")
    assert strategy.ledger.of_round(3).downlink_bytes < strategy.ledger.of_round(1).downlink_bytes
    strategy.start(grid, model(), num_rounds=1)
    assert "residual" not in strategy.publisher.memory
    assert strategy.ledger.of_round(4).downlink_bytes > 3 * 4 * 1025, "dense deltas now"


def test_momentum_inside_a_wrapper_steps_from_the_published_model() -> None:
    finals = []
    for clipped in (False, True):
        random.seed(2)
        inner: Strategy = FedAvgM(fraction_train=1.0, fraction_evaluate=0.0, server_momentum=0.9)
        if clipped:  # without noise, and with a norm that clips nothing
            inner = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, clipping_norm=1e6, num_sampled_clients=3)
        initial = ArrayRecord({name: array for name, array in model().items() if "norm" not in name})
        strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.stc(density=0.05))
        strategy.start(LocalGrid(app(), 3), initial, num_rounds=6)
        finals.append(floats(strategy.arrays))
    np.testing.assert_allclose(finals[1], finals[0], rtol=1e-4, atol=1e-5)


def test_a_second_start_with_another_model_is_refused() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(app(), 2), model(), num_rounds=1)
    with pytest.raises(ValueError, match="another model"):
        strategy.start(LocalGrid(app(), 2), model((3, 3)), num_rounds=1)


@pytest.mark.parametrize(
    ("inner", "settings", "named"),
    [
        (None, {}, "None"),
        (FedAvg, {}, "class .*FedAvg"),
        (CompressedStrategy(FedAvg()), {}, "already"),
        (FedAvg(), {"uplink": "stc()"}, "'stc\\(\\)'"),
        (FedAvg(), {"seed": -1}, "seed is -1"),
    ],
)
def test_a_wrong_argument_is_refused_at_construction(inner: Any, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        CompressedStrategy(inner, **settings)


def test_local_may_be_a_single_pattern() -> None:
    assert CompressedStrategy(FedAvg(), local="head.*").local == ("head.*",)


@pytest.mark.parametrize("late", ["evaluate", "train"])
def test_a_late_reply_of_another_kind_is_dropped(late: str, flower_log: pytest.LogCaptureFixture) -> None:
    """It would answer the newest message to its node, which is not asked in this step."""

    class Late(LocalGrid):
        kept: tuple[Message, ...] = ()

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            if replies[0].metadata.message_type == late:
                self.kept = tuple(reply for reply in replies if reply.metadata.src_node_id == 2)
                return [reply for reply in replies if reply not in self.kept]
            return [*replies, *self.kept]

    strategy = CompressedStrategy(Watching())
    strategy.start(Late(app(), NODES), model(), num_rounds=3)
    assert f"it answers a message of type '{late}', which is over" in flower_log.text
    assert not strategy.failed_rounds
    assert strategy.version == 3


@pytest.mark.sample(5)
@pytest.mark.one_flower
@pytest.mark.parametrize("text", ["stc(density=0.1)", "eden(bits=1)"])
@pytest.mark.parametrize("inner", INNER)
def test_updates_that_take_too_much_memory_decoded_are_decoded_when_they_are_used(
    inner: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[ArrayRecord] = []
    for limit in (2**30, 1500):  # 1500 bytes hold one of them, or none
        monkeypatch.setattr(replies, "MAX_DECODED_BYTES", limit)
        kept: list[bool] = []

        def spy(self: replies.ReplyValidator, received: Iterable[ReceivedReply], *, train: bool) -> Any:
            valid, failed = VALIDATE(self, received, train=train)
            kept.extend(not isinstance(one.update.change, Undecoded) for one in valid if one.update)  # noqa: B023
            return valid, failed

        monkeypatch.setattr(replies.ReplyValidator, "validate", spy)
        link = fedcomp.parse(text)
        strategy = CompressedStrategy(INNER[inner](), uplink=link, downlink=link, clipping=Clipping(median=2))
        strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
        models.append(strategy.arrays)
        assert len(kept) == 2 * NODES
        assert (sum(kept) == len(kept)) == (limit > 1500)
        assert sum(kept) <= 2 or limit > 1500
    np.testing.assert_array_equal(floats(models[0]), floats(models[1]))


@pytest.mark.parametrize(("inner", "refused"), [("Krum", 2), ("FedAvg", 0)])
def test_a_weight_of_0_is_refused_where_the_strategy_may_select_that_reply_alone(inner: str, refused: int) -> None:
    strategy = CompressedStrategy(INNER[inner](), uplink=fedcomp.stc(density=0.1), downlink=fedcomp.dense())
    strategy.start(Meddling(update_of(0, 0), node=1), model(), num_rounds=2)
    assert strategy.ledger.by_node()[1].refused == refused
    assert not strategy.failed_rounds


class TrainsAndEvaluates(Strategy):
    """Lets node 1 evaluate while the others train, in the step `step`; it has Flower's FedAvg for the rest."""

    def __init__(self, step: str) -> None:
        self.step, self.own = step, FedAvg()
        self.answers: list[list[tuple[str, bool]]] = []

    def summary(self) -> None:
        pass

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        return self._mixed("train", self.own.configure_train(server_round, arrays, config, grid))

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        messages = self.own.configure_train(server_round, arrays, config, grid)
        return self._mixed("evaluate", [Message(m.content, m.metadata.dst_node_id, "evaluate") for m in messages])

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = self._noted(replies)
        return self.own.aggregate_train(server_round, [m for m in replies if m.metadata.message_type == "train"])

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        self._noted(replies)
        return None

    def _mixed(self, step: str, messages: Messages) -> Messages:
        other = {"train": "evaluate", "evaluate": "train"}[step]
        for message in messages:
            to = message.metadata.dst_node_id
            yield Message(message.content, to, other if to == 1 and step == self.step else step)

    def _noted(self, replies: Messages) -> list[Message]:
        replies = list(replies)
        self.answers.append(sorted((m.metadata.message_type, m.has_content()) for m in replies))
        return replies


@pytest.mark.parametrize("step", ["train", "evaluate"])
def test_a_step_may_have_messages_of_both_types(step: str) -> None:
    inner = TrainsAndEvaluates(step)
    strategy = CompressedStrategy(inner)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    trains, evaluates = [("train", True)] * NODES, [("evaluate", True)] * NODES
    if step == "train":
        trains = [("evaluate", True), *trains[1:]]
    else:
        evaluates = [*evaluates[1:], ("train", True)]
    assert inner.answers == [trains, evaluates] * 2
    assert (strategy.version, strategy.ledger.refused) == (2, 0)
