"""Strategies in which users replaced something of Flower's: under compression they do what they do alone, or say why not."""

from collections.abc import Iterable
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
    Result,
    Strategy,
)

import fedcomp
from fedcomp.flower import (
    EF21,
    Clipping,
    CompressedStrategy,
    CompressionMod,
    DynamicSampling,
    LocalGrid,
    ReplyDeclaration,
    ReplyUse,
)
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, training

NODES = 3


def record_of(**arrays: Any) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def adding(arrays: Arrays, context: Context, _: int) -> dict[str, Any]:
    """Add the number of the node, from 1, to each entry."""
    return {name: array + np.float32(int(context.node_config["partition-id"]) + 1) for name, array in arrays.items()}


def run(strategy: Strategy, app: ClientApp, rounds: int = 3, **settings: Any) -> Arrays:
    first = record_of(w=np.zeros(4, np.float32))
    return arrays_of(strategy.start(LocalGrid(app, NODES), first, num_rounds=rounds, **settings).arrays)


def dense(strategy: Strategy) -> CompressedStrategy:
    return CompressedStrategy(strategy, uplink=fedcomp.dense(), downlink=fedcomp.dense())


def check_alike(strategies: Iterable[Strategy], change: Any = adding) -> None:
    """Check that the first strategy, alone, and the second one, compressed without loss, end in the same model."""
    plain, wrapped = strategies
    alone = run(plain, training(change, mod=False))
    np.testing.assert_allclose(run(dense(wrapped), training(change))["w"], alone["w"], rtol=1e-6)


class Scaffold(FedAvg):
    """Takes the first record of a reply for the model, and the second one for something else, as its app sends them."""

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        contents = [reply.content for reply in replies]
        self.orders = [list(content) for content in contents]
        models = [next(iter(content.array_records.values()))["w"].numpy() for content in contents]
        return record_of(w=np.mean(models, axis=0, dtype=np.float32)), None


@pytest.mark.parametrize("names", [("arrays", "metrics"), ("trained", "mine")])
def test_the_records_of_a_reply_have_the_order_in_which_the_node_sent_them(names: tuple[str, str]) -> None:
    """If one node names the model and its metrics otherwise, they have the names of the others, and their places."""
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
        model, metrics = names if context.node_id == 1 else ("arrays", "metrics")
        parts: dict[str, Any] = {"about": ConfigRecord({"os": "x"}), model: record_of(w=w + 1)}
        parts |= {metrics: MetricRecord({"num-examples": 1}), "control": record_of(c=0 * w - 7)}
        return Message(RecordDict(parts), reply_to=message)

    strategy = Scaffold(fraction_evaluate=0.0)
    assert run(dense(strategy), app)["w"].tolist() == [3.0] * 4
    assert strategy.orders == [["about", "arrays", "metrics", "control"]] * NODES


def with_method(strategy: FedAvg) -> FedAvg:
    """Return `strategy`, which halves the model that it makes of at least two replies, by a function set on the object."""
    original = strategy.aggregate_train

    def aggregate_train(server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        arrays, metrics = original(server_round, replies)
        assert arrays is not None
        assert len(replies) == NODES
        return record_of(**{name: array / 2 for name, array in arrays_of(arrays).items()}), metrics

    strategy.aggregate_train = aggregate_train  # type: ignore[method-assign]
    return strategy


class OfTheMean(FedAvg, ReplyDeclaration):
    """Says of its class, not of its objects, that it reads only the mean."""

    reply_use = ReplyUse.MEAN


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, OfTheMean])
def test_a_method_that_is_set_on_the_object_is_called_with_each_reply(kind: type[FedAvg]) -> None:
    check_alike(with_method(kind(fraction_evaluate=0.0)) for _ in range(2))


def test_a_method_that_is_set_on_the_object_needs_what_it_reads_and_no_metrics() -> None:
    def aggregate_train(server_round: int, replies: Messages) -> Aggregate:
        models = [cast(ArrayRecord, reply.content["arrays"])["w"].numpy() for reply in replies]
        return record_of(w=np.mean(models, axis=0)), None

    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, _: Context) -> Message:
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
        return Message(RecordDict({"arrays": record_of(w=w + np.float32(1))}), reply_to=message)

    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.aggregate_train = aggregate_train  # type: ignore[method-assign]
    assert run(dense(strategy), app)["w"].tolist() == [3.0] * 4


class Choosy(FedAvg):
    """Leaves out the model that has moved farthest."""

    def _check_and_log_replies(self, *arguments: Any, **settings: Any) -> tuple[list[Message], list[Message]]:
        valid, errors = super()._check_and_log_replies(*arguments, **settings)
        valid.sort(key=lambda reply: float(cast(ArrayRecord, reply.content["arrays"])["w"].numpy()[0]))
        return valid[:-1], errors


class Declaring(Choosy, ReplyDeclaration):
    """Says that it reads only the mean, which is not that of all replies."""

    reply_use = ReplyUse.MEAN


@pytest.mark.parametrize("kind", [Choosy, Declaring])
def test_a_subclass_that_leaves_replies_out_aggregates_the_others(kind: type[FedAvg]) -> None:
    check_alike(kind(fraction_evaluate=0.0) for _ in range(2))


class OwnStart(FedAvg):
    """Has a `start` that halves the aggregated record in place."""

    def start(  # type: ignore[override]  # of the arguments, it needs these
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, **_: Any
    ) -> Result:
        arrays = initial_arrays
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, ConfigRecord(), grid)
            arrays = cast(ArrayRecord, self.aggregate_train(number, grid.send_and_receive(messages))[0])
            arrays["w"] = Array(arrays["w"].numpy() / np.float32(2))
        result = Result()
        result.arrays = arrays
        return result


def start_set_on_the_object() -> FedAvg:
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start = lambda *given, **settings: Strategy.start(strategy, *given, **settings)  # type: ignore[method-assign]
    return strategy


def step_set_on_the_object() -> FedAvg:
    strategy = OwnStart(fraction_evaluate=0.0)
    strategy.configure_train = strategy.configure_train  # type: ignore[method-assign]
    return strategy


@pytest.mark.parametrize(
    ("strategy", "method"),
    [(start_set_on_the_object(), "start"), (step_set_on_the_object(), "configure_train")],
)
def test_where_a_start_of_ones_own_would_go_around_compression_the_run_is_refused(
    strategy: FedAvg, method: str
) -> None:
    with pytest.raises(ValueError, match=f"{method} of the .* is set on the object.* override it in a class"):
        run(dense(strategy), training(adding))


class OneRound(FedAvg):
    """Has a `start` of its own that runs one round."""

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *given: Any, **settings: Any) -> Result:
        return super().start(grid, initial_arrays, *given, **settings | {"num_rounds": 1})


def test_a_summary_may_be_set_on_the_object_beside_a_start_of_ones_own() -> None:
    strategy, calls = OneRound(fraction_evaluate=0.0), list[str]()
    strategy.summary = lambda: calls.append("summary")  # type: ignore[method-assign]
    assert run(dense(strategy), training(adding))["w"].tolist() == [2.0] * 4
    assert calls == ["summary"]


class Writing(FedAvg):
    """Writes into the record of the model before it is sent."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        arrays["w"] = Array(np.full(4, 9, np.float32))
        return super().configure_train(server_round, arrays, config, grid)


def clip(_: int, arrays: ArrayRecord) -> MetricRecord | None:
    arrays["w"] = Array(np.clip(arrays["w"].numpy(), 0, 1))
    return None


@pytest.mark.parametrize(
    ("strategy", "settings", "sentence"),
    [
        (Writing, {}, "Writing sends node . no record of the published model as it was passed to it"),
        (FedAvg, {"evaluate_fn": clip}, "the arrays are not the published model; pass on .*, unchanged"),
        (OwnStart, {}, "the arrays are not the published model; pass on .*, unchanged"),
    ],
)
def test_a_model_that_was_changed_in_place_is_refused(
    strategy: type[FedAvg], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(dense(strategy(fraction_evaluate=0.0)), training(adding), **settings)


def test_strategies_that_refer_to_each_other_can_be_wrapped(tmp_path: Any) -> None:
    class Parent(FedAvg):
        """Has a child that knows it."""

        def __init__(self) -> None:
            super().__init__(fraction_evaluate=0.0)
            self.child = FedAvg(fraction_evaluate=0.0)
            self.child.parent = self  # type: ignore[attr-defined]
            self.me = self

    strategy = dense(Parent())
    assert run(strategy, training(adding))["w"].tolist() == [6.0] * 4
    strategy.save(tmp_path / "checkpoint")
    again = dense(Parent())
    again.load(tmp_path / "checkpoint")
    assert again.version == 3


def test_the_partition_of_a_node_may_be_a_name_which_seeds_what_it_draws() -> None:
    def end(names: list[str]) -> list[float]:
        grid = LocalGrid(training(adding_half), 2, node_config=lambda node: {"partition-id": names[node - 1]})
        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.qsgd(), downlink=fedcomp.dense())
        found: list[float] = arrays_of(strategy.start(grid, record_of(w=np.zeros(64)), num_rounds=1).arrays)[
            "w"
        ].tolist()
        return found

    def adding_half(arrays: Arrays, _: Context, __: int) -> dict[str, Any]:
        return {"w": arrays["w"] + np.linspace(0.1, 0.5, 64)}

    assert end(["north", "east"]) == end(["north", "east"]) != end(["south", "east"])


class Collecting(FedAvg):
    """Aggregates the replies of two rounds; in the first one it returns no model, or, if it `holds`, the one it was given."""

    def __init__(self, *, holds: bool) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.holds, self.kept = holds, list[Message]()
        self.given: ArrayRecord | None = None

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        self.given = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        self.kept += replies
        if server_round % 2:
            return (self.given if self.holds else None), None
        kept, self.kept = self.kept, []
        return super().aggregate_train(server_round, kept)


@pytest.mark.parametrize("holds", [False, True])
def test_updates_that_a_strategy_keeps_for_later_count_once_or_the_log_says_that_they_do_not(
    holds: bool, flower_log: pytest.LogCaptureFixture
) -> None:
    strategy = CompressedStrategy(Collecting(holds=holds), uplink=fedcomp.topk(density=0.5), downlink=fedcomp.dense())
    change = training(lambda arrays, _, __: {"w": arrays["w"] + np.array([1, 2, 3, 4], np.float32)})
    found = run(strategy, change, rounds=20)["w"]
    sentence = "returned no model, so the 3 updates of the round go back to their nodes, and are sent again"
    assert (sentence in flower_log.text) is not holds
    # Two rounds are one step, of the mean of all updates; what is kept in the residual is the step of a few rounds.
    assert (np.abs(found - 10 * np.array([1, 2, 3, 4])) < 6).all() == holds


def test_a_strategy_that_keeps_replies_for_later_is_not_warned_where_no_update_returns(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    assert run(dense(Collecting(holds=False)), training(adding), rounds=4)["w"].tolist() == [4.0] * 4
    assert "go back" not in flower_log.text


def test_a_strategy_of_flower_that_makes_no_model_is_not_told_to_return_one(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    """Flower's differential privacy makes none in a round in which a node has failed."""

    def change(arrays: Arrays, context: Context, server_round: int) -> dict[str, Any]:
        if (context.node_id, server_round) == (2, 1):
            raise OSError("the disk is full")
        return {"w": arrays["w"] + 1}

    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 0.0, 10.0, NODES)
    strategy = CompressedStrategy(private, uplink=fedcomp.topk(density=0.5), downlink=fedcomp.dense())
    run(strategy, training(change))
    assert strategy.version == 2, "the first round has no model"
    assert "returned no model" not in flower_log.text


class Declared(Collecting, ReplyDeclaration):
    """Says how it makes its next model."""


@pytest.mark.parametrize(
    ("strategy", "downlink", "said"),
    [
        (Scaffold(fraction_evaluate=0.0), "topk()", True),
        (Scaffold(fraction_evaluate=0.0), "dense()", False),
        (FedAvg(fraction_evaluate=0.0), "topk()", False),
        (Declared(holds=True), "topk()", False),
    ],
)
def test_what_is_assumed_of_an_own_strategy_is_in_the_log_where_a_residual_makes_it_matter(
    strategy: FedAvg, downlink: str, said: bool, flower_log: pytest.LogCaptureFixture
) -> None:
    wrapped = CompressedStrategy(strategy, uplink=fedcomp.dense(), downlink=fedcomp.parse(downlink))
    run(wrapped, training(adding), rounds=2)
    line = f"{type(strategy).__name__}.aggregate_train is assumed to make a step from the model of configure_train"
    assert (line in flower_log.text) is said


class Ramp(FedAvg, ReplyDeclaration):
    """Goes to a model of its own, whatever nodes send."""

    starts_from_published = False

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        return record_of(w=np.linspace(1, 2, 20, dtype=np.float32) * min(server_round, 5)), None


def _private(inner: Strategy) -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1e9, NODES)


def test_a_declared_model_of_its_own_is_reached_inside_differential_privacy() -> None:
    strategy = CompressedStrategy(
        _private(Ramp(fraction_evaluate=0.0)), uplink=fedcomp.dense(), downlink=fedcomp.topk(density=0.2, values="fp32")
    )
    first = record_of(w=np.zeros(20, np.float32))
    strategy.start(LocalGrid(training(adding), NODES), first, num_rounds=15)
    np.testing.assert_allclose(strategy.arrays["w"].numpy(), np.linspace(5, 10, 20), rtol=1e-6)


def test_the_log_speaks_of_a_users_code_inside_differential_privacy(flower_log: pytest.LogCaptureFixture) -> None:
    private = _private(Scaffold(fraction_evaluate=0.0))
    run(CompressedStrategy(private, uplink=fedcomp.dense(), downlink=fedcomp.topk()), training(adding), rounds=2)
    assert "Scaffold.aggregate_train is assumed to make a step" in flower_log.text


@pytest.mark.parametrize("uplink", ["dense()", "ef21()"])
@pytest.mark.parametrize("wrap", [_private, lambda inner: _private(DynamicSampling(inner, beta=0.1))])
def test_a_sum_of_increments_cannot_be_wrapped(wrap: Any, uplink: str) -> None:
    with pytest.raises(ValueError, match="EF21 inside DifferentialPrivacyServerSideFixedClipping would get models"):
        CompressedStrategy(wrap(EF21()), uplink=fedcomp.parse(uplink))


class FromScratch(Strategy):
    """Trains all nodes, notes which of them decline, and averages the models of the others."""

    def __init__(self) -> None:
        self.declined: list[tuple[int, Any]] = []

    def summary(self) -> None:
        """Log nothing."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        config = ConfigRecord({"server-round": server_round})
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, dst_node_id=node, message_type="train") for node in grid.get_node_ids()]

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        contents = {reply.metadata.src_node_id: reply.content for reply in replies}
        self.declined += [(node, each["declined"]) for node, each in contents.items() if "declined" in each]
        models = [cast(ArrayRecord, each["arrays"])["w"].numpy() for each in contents.values() if "arrays" in each]
        return record_of(w=np.mean(models, axis=0)), None

    def configure_evaluate(self, *_: Any, **__: Any) -> Messages:
        return []

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        return None


def declining() -> ClientApp:
    """Return an app whose node 2 trains nothing and says why; the others add 3 to each weight."""
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_id == 2:
            return Message(RecordDict({"declined": ConfigRecord({"battery": "low"})}), reply_to=message)
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
        return Message(RecordDict({"arrays": record_of(w=w + np.float32(3))}), reply_to=message)

    return app


def test_a_strategy_from_scratch_gets_replies_without_a_model() -> None:
    strategy = FromScratch()
    assert run(dense(strategy), declining(), rounds=2)["w"].tolist() == [6.0] * 4
    assert strategy.declined == [(2, ConfigRecord({"battery": "low"}))] * 2


def test_a_node_that_declines_leaves_the_bound_of_the_norm_in_force() -> None:
    bound = Clipping(norm=3.0)  # half of the norm of four entries of 3
    strategy = CompressedStrategy(FromScratch(), uplink=fedcomp.dense(), downlink=fedcomp.dense(), clipping=bound)
    np.testing.assert_allclose(run(strategy, declining(), rounds=2)["w"], [3.0] * 4, rtol=1e-6)


class Delegating(FromScratch):
    """Leaves the aggregation to a FedAvg, which cannot use a reply without a model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = FedAvg()

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        return self.inner.aggregate_train(server_round, replies)


def test_where_an_own_strategy_fails_on_replies_without_a_model_they_are_left_out_from_then_on() -> None:
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
        parts: dict[str, Any] = {"metrics": MetricRecord({"num-examples": 1})}
        if context.node_id == 1:  # most of them decline
            parts["arrays"] = record_of(w=w + np.float32(3))
        return Message(RecordDict(parts), reply_to=message)

    strategy = dense(Delegating())
    assert run(strategy, app, rounds=3)["w"].tolist() == [6.0] * 4
    assert strategy.failed_rounds == (1,)


class Together(OwnStart):
    """Sends a node its training and its evaluation message together."""

    def start(  # type: ignore[override]  # of the arguments, it needs these
        self, grid: Grid, initial_arrays: ArrayRecord, **_: Any
    ) -> Result:
        messages = [
            *self.configure_train(1, initial_arrays, ConfigRecord(), grid),
            *self.configure_evaluate(1, initial_arrays, ConfigRecord(), grid),
        ]
        grid.send_and_receive(messages)
        return Result()


class Asking(OwnStart):
    """Sends a node its training message together with one without a model, which the mod passes on."""

    def start(  # type: ignore[override]  # of the arguments, it needs these
        self, grid: Grid, initial_arrays: ArrayRecord, **_: Any
    ) -> Result:
        messages = list(self.configure_train(1, initial_arrays, ConfigRecord(), grid))
        about = RecordDict({"config": ConfigRecord({"server-round": 1})})
        asks = [Message(about, dst_node_id=each.metadata.dst_node_id, message_type="train.ask") for each in messages]
        replies = list(grid.send_and_receive([*asks, *messages]))
        self.answers = sum("answer" in reply.content for reply in replies if reply.has_content())
        arrays = self.aggregate_train(1, [each for each in replies if each.metadata.message_type == "train"])[0]
        result = Result()
        result.arrays = cast(ArrayRecord, arrays)
        return result


def test_a_message_without_a_model_may_go_with_one_that_has_it() -> None:
    app = training(adding)

    @app.train("ask")
    def ask(message: Message, _: Context) -> Message:
        return Message(RecordDict({"answer": ConfigRecord({"cores": 4})}), reply_to=message)

    strategy = Asking(fraction_evaluate=0.0)
    assert run(dense(strategy), app)["w"].tolist() == [2.0] * 4
    assert strategy.answers == NODES


class Twice(FedAvg):
    """Trains each node twice in a round."""

    def configure_train(self, *arguments: Any, **settings: Any) -> Messages:
        return [*super().configure_train(*arguments, **settings), *super().configure_train(*arguments, **settings)]


@pytest.mark.parametrize("kind", [Together, Twice])
def test_two_messages_at_a_time_to_a_node_are_refused(kind: type[FedAvg]) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} sends node . two messages at a time; .*after the reply"):
        run(dense(kind()), training(adding))


@pytest.mark.parametrize(
    ("first", "values", "shown"),
    [
        (np.array([0, 7]), [0.25, 7], "0.25"),
        (np.array([True, False]), [0.5, 0], "0.5"),
        (np.array([True, False]), [1, 2], "2"),
        (np.array([1, 2], np.int8), [1, 300], "300"),
        (np.array([0, 7]), [3, 7], None),
        (np.array([True, False]), [0, 1], None),
    ],
)
def test_a_node_warns_of_numbers_that_an_integer_tensor_cannot_hold(
    first: Any, values: list[float], shown: str | None, flower_log: pytest.LogCaptureFixture
) -> None:
    app = training(lambda arrays, _, __: {"w": arrays["w"] + 1, "b": np.array(values, float)})
    start = record_of(w=np.zeros(2, np.float32), b=first)
    found = arrays_of(dense(FedAvg(fraction_evaluate=0.0)).start(LocalGrid(app, 2), start, num_rounds=2).arrays)
    assert found["w"].tolist() == [2, 2], "the update counts"
    sentence = f"tensor 'b' is {first.dtype}, by the first model, so {shown} is rounded; if it is trained, start with a"
    assert flower_log.text.count(sentence) == (2 if shown else 0), "each node, once"
    assert ("is rounded" in flower_log.text) is bool(shown)


def test_a_node_does_not_warn_of_statistics_in_another_precision(flower_log: pytest.LogCaptureFixture) -> None:
    first = record_of(**{"w": np.zeros(2, np.float32), "norm.running_mean": np.zeros(2, np.float32)})
    app = training(lambda arrays, _, __: {name: array.astype(float) + 1 / 3 for name, array in arrays.items()})
    dense(FedAvg(fraction_evaluate=0.0)).start(LocalGrid(app, 2), first, num_rounds=1)
    assert "is rounded" not in flower_log.text


def test_integers_may_come_back_as_floats_and_their_mean_is_rounded() -> None:
    def change(arrays: Arrays, context: Context, _: int) -> dict[str, Any]:
        return {"w": arrays["w"] + 1, "count": np.float64(10 * context.node_id), "on": np.array([1.0, 0.0])}

    first = record_of(w=np.zeros(2, np.float32), count=np.array(0), on=np.array([False, False]))
    strategy = dense(FedAvg(fraction_evaluate=0.0))
    found = arrays_of(strategy.start(LocalGrid(training(change), 2), first, num_rounds=1).arrays)
    assert (found["count"].tolist(), found["on"].tolist()) == (15, [True, False])


def test_a_list_that_a_strategy_returns_may_hold_the_float_mean_of_a_counter() -> None:
    class Lists(FedAvg):
        """Averages lists."""

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            models = [cast(ArrayRecord, reply.content["arrays"]).to_numpy_ndarrays() for reply in replies]
            means = [np.mean(each, axis=0) for each in zip(*models, strict=True)]
            return ArrayRecord([np.asarray(mean) for mean in means]), None

    def change(arrays: Arrays, _: Context, __: int) -> dict[str, Any]:
        return {name: array + 1 for name, array in arrays.items()}

    first = record_of(w=np.zeros(2, np.float32), counter=np.array(4))
    strategy = dense(Lists(fraction_evaluate=0.0))
    found = arrays_of(strategy.start(LocalGrid(training(change), NODES), first, num_rounds=2).arrays)
    assert (found["w"].tolist(), found["counter"].tolist()) == ([2.0, 2.0], 6)
