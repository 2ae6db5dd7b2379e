"""An app that forgets CompressionMod, or has it on one handler only, learns in the first round what to change."""

from typing import cast

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import FedAvg

from fedcomp.errors import NoUpdateError
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from tests.flower.toy import model


def app(
    mods: tuple[Mod, ...] = (), train_mods: tuple[Mod, ...] = (), evaluate_mods: tuple[Mod, ...] = (), without: int = 0
) -> ClientApp:
    """Return an app that reads arrays as PyTorch apps do; the node `without` handles its messages without CompressionMod."""

    class ButOne(CompressionMod):
        def __call__(self, message: Message, context: Context, call_next: object) -> Message:
            if context.node_id == without:
                return cast(Message, call_next(message, context))  # type: ignore[operator]
            return super().__call__(message, context, call_next)  # type: ignore[arg-type]

    client_app = ClientApp(mods=[ButOne()] if without else list(mods))

    @client_app.train(mods=list(train_mods))
    def train(message: Message, _: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        arrays.to_numpy_ndarrays()
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @client_app.evaluate(mods=list(evaluate_mods))
    def evaluate(message: Message, _: Context) -> Message:
        cast(ArrayRecord, message.content["arrays"]).to_numpy_ndarrays()
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return client_app


def test_clients_of_the_old_api_are_named(flower_log: pytest.LogCaptureFixture) -> None:
    old = ClientApp(client_fn=lambda _: NumPyClient().to_client(), mods=[CompressionMod()])
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    with pytest.raises(NoUpdateError, match="fitins"):
        strategy.start(LocalGrid(old, 2), model(), num_rounds=1)
    assert (
        "it has clients of Flower's old API, such as NumPyClient; functions under @app.train() are" in flower_log.text
    )
    assert "add it" not in flower_log.text


def warnings(flower_log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in flower_log.records if "CompressionMod" in each.getMessage()]


@pytest.mark.parametrize("where", ["nowhere", "evaluate alone", "behind a mod that reads arrays"])
def test_without_the_mod_in_training_the_run_ends_in_the_first_round(where: str) -> None:
    client_app = {
        "nowhere": app(),
        "evaluate alone": app(evaluate_mods=(CompressionMod(),)),
        "behind a mod that reads arrays": app(mods=(LocalDpMod(1.0, 1.0, 1.0, 1e-5), CompressionMod())),
    }[where]
    strategy = CompressedStrategy(FedAvg())
    with pytest.raises(
        ValueError, match=r"round 1: .*@app\.train on nodes 1, 2; .*ClientApp\(mods=\[CompressionMod\(\)"
    ):
        strategy.start(LocalGrid(client_app, 2), model(), 3)
    assert strategy.round == 0


def test_an_app_that_ignores_the_arrays_it_gets_is_found_as_well() -> None:
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, _: Context) -> Message:
        content = RecordDict({"arrays": model(), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    with pytest.raises(ValueError, match=r"mods=\[CompressionMod"):
        CompressedStrategy(FedAvg()).start(LocalGrid(client_app, 2), model(), 1)


def test_the_mod_on_the_training_handler_alone_is_one_sentence_about_evaluation(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    strategy = CompressedStrategy(FedAvg())
    strategy.start(LocalGrid(app(train_mods=(CompressionMod(),)), 2), model(), 1)
    assert strategy.version == 1
    (line,) = warnings(flower_log)
    assert "round 1" in line
    assert "@app.evaluate on nodes 1, 2" in line


def test_one_node_without_the_mod_is_named_and_the_others_go_on(flower_log: pytest.LogCaptureFixture) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(app(without=2), 3), model(), 1)
    assert strategy.version == 1
    (line,) = warnings(flower_log)
    assert "on node 2;" in line


def test_other_errors_of_all_nodes_are_quoted_with_the_advice(flower_log: pytest.LogCaptureFixture) -> None:
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, _: Context) -> Message:
        bias = cast(ArrayRecord, message.content["arrays"])["layer.bias"]
        return Message(RecordDict({"arrays": ArrayRecord({"layer.bias": bias})}), reply_to=message)

    with pytest.raises(NoUpdateError, match=r"layer\.bias"):
        CompressedStrategy(FedAvg(fraction_evaluate=0.0)).start(LocalGrid(client_app, 2), model(), 1)
    (line,) = warnings(flower_log)
    assert "layer.bias" in line


def test_errors_that_have_nothing_to_do_with_the_mod_are_not_blamed_on_it_later(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, _: Context) -> Message:
        if cast(ConfigRecord, message.content["config"])["server-round"] == 2:
            raise RuntimeError("out of memory")
        content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    CompressedStrategy(FedAvg(fraction_evaluate=0.0)).start(LocalGrid(client_app, 2), model(), 2)
    assert not warnings(flower_log)
