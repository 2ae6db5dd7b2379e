"""Strategies in which users replaced something of Flower's: under compression they do what they do alone, or say why not."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
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

    def app_of(mods: list[Any]) -> ClientApp:
        app = ClientApp(mods=mods)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            w = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
            model, metrics = names if context.node_id == 1 else ("arrays", "metrics")
            parts: dict[str, Any] = {
                "about": ConfigRecord({"os": "x"}),
                model: record_of(w=w + 1),
                "control": record_of(c=0 * w - 7),
            }
            content = RecordDict(parts)
            content[metrics] = MetricRecord({"num-examples": 1})
            return Message(content, reply_to=message)

        return app

    strategy = Scaffold(fraction_evaluate=0.0)
    assert run(dense(strategy), app_of([CompressionMod()]))["w"].tolist() == [3.0] * 4
    assert strategy.orders == [["about", "arrays", "control", "metrics"]] * NODES


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


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM])
def test_a_method_that_is_set_on_the_object_is_called_with_each_reply(kind: type[FedAvg]) -> None:
    check_alike(with_method(kind(fraction_evaluate=0.0)) for _ in range(2))


def test_a_subclass_that_leaves_replies_out_aggregates_the_others() -> None:
    class Choosy(FedAvg):
        """Leaves out the model that has moved farthest."""

        def _check_and_log_replies(self, *arguments: Any, **settings: Any) -> tuple[list[Message], list[Message]]:
            valid, errors = super()._check_and_log_replies(*arguments, **settings)
            valid.sort(key=lambda reply: float(cast(ArrayRecord, reply.content["arrays"])["w"].numpy()[0]))
            return valid[:-1], errors

    check_alike(Choosy(fraction_evaluate=0.0) for _ in range(2))


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
    strategy.start = strategy.start  # type: ignore[method-assign]
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


def test_the_partition_of_a_node_may_be_a_name() -> None:
    ends = []
    for _ in range(2):
        app = training(lambda arrays, context, _: {"w": arrays["w"] + np.float32(0.1) * context.node_id})
        grid = LocalGrid(app, NODES, node_config=lambda node: {"partition-id": f"site-{node}"})
        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.qsgd(), downlink=fedcomp.dense())
        ends.append(arrays_of(strategy.start(grid, record_of(w=np.zeros(64, np.float32)), num_rounds=2).arrays)["w"])
    assert ends[0].tolist() == ends[1].tolist()
    assert abs(ends[0].mean() - 0.4) < 0.1
