"""XGBoost's strategies and bytes, as Flower's quickstart has them: nothing to compress, so everything passes."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedXgbBagging, FedXgbCyclic, Result, Strategy

import fedcomp
from fedcomp.core import format_bytes
from fedcomp.flower import Checkpoint, CompressedStrategy, CompressionMod, LocalGrid, Round, to_record
from tests.flower.toy import model

EMPTY = ArrayRecord([np.frombuffer(b"", np.uint8)])
"""The initial model of Flower's quickstart: each node begins a booster of its own."""


def _booster(trees: list[float]) -> dict[str, Any]:
    """Return those parts of XGBoost's JSON that Flower reads, with one number for each tree."""
    parts = {
        "gbtree_model_param": {"num_trees": str(len(trees)), "num_parallel_tree": "1"},
        "iteration_indptr": list(range(len(trees) + 1)),
        "trees": [{"id": number, "leaf": leaf} for number, leaf in enumerate(trees)],
        "tree_info": [0] * len(trees),
    }
    return {"learner": {"gradient_booster": {"model": parts}}}


def _leaves(record: ArrayRecord) -> list[float]:
    data = record["0"].numpy().tobytes()
    trees = json.loads(data)["learner"]["gradient_booster"]["model"]["trees"] if data else []
    return [tree["leaf"] for tree in trees]


def _app() -> ClientApp:
    """Return an app that replies with one tree more under cyclic training, or its own tree under bagging."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = _leaves(cast(ArrayRecord, message.content["arrays"]))
        trees = [context.node_id + len(given) / 10] if context.run_config["bagging"] else [*given, context.node_id]
        booster = np.frombuffer(json.dumps(_booster(trees)).encode(), np.uint8)
        content = {"arrays": ArrayRecord([booster]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(cast(Any, content)), reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        count = len(_leaves(cast(ArrayRecord, message.content["arrays"])))
        return Message(RecordDict({"metrics": MetricRecord({"trees": count, "num-examples": 1})}), reply_to=message)

    return client_app


def _run(strategy: Strategy, *, bagging: bool) -> tuple[list[float], list[Any]]:
    random.seed(1)
    result = strategy.start(LocalGrid(_app(), 3, {"bagging": bagging}), EMPTY, num_rounds=4)
    return _leaves(result.arrays), [dict(metrics) for metrics in result.evaluate_metrics_clientapp.values()]


@pytest.mark.parametrize("kind", [FedXgbBagging, FedXgbCyclic])
def test_the_trees_are_those_of_plain_flower(
    kind: type[FedXgbBagging] | type[FedXgbCyclic], flower_log: pytest.LogCaptureFixture
) -> None:
    bagging = kind is FedXgbBagging
    rounds: list[Round] = []
    strategy = CompressedStrategy(kind(), on_round=rounds.append)
    plain, compressed = _run(kind(), bagging=bagging), _run(strategy, bagging=bagging)
    assert compressed == plain
    assert len(plain[0]) == (12 if bagging else 4)
    assert flower_log.text.count("holds uint8 alone, which is not compressed") == 1
    assert [each.number for each in rounds] == [1, 2, 3, 4]


@pytest.mark.parametrize("first", [EMPTY, to_record({"w": np.zeros(3, np.float32)})])
def test_a_strategy_may_use_what_only_its_own_grid_has(first: ArrayRecord) -> None:
    seen: list[int] = []

    class Reads(FedXgbCyclic):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            seen.append(len(grid.contexts))  # type: ignore[attr-defined]
            return []

    CompressedStrategy(Reads(fraction_evaluate=0)).start(LocalGrid(_app(), 3), first, num_rounds=1)
    assert seen == [3]


def test_an_inner_start_runs() -> None:
    class Timed(FedXgbCyclic):
        ended = 0

        def start(self, *settings: Any, **named: Any) -> Result:
            result = super().start(*settings, **named)
            self.ended += 1
            return result

    inner = Timed()
    assert len(_run(CompressedStrategy(inner), bagging=False)[0]) == 4
    assert inner.ended == 1


def test_the_bytes_are_in_the_ledger_and_the_closing_line(flower_log: pytest.LogCaptureFixture) -> None:
    strategy = CompressedStrategy(FedXgbCyclic())
    result = strategy.start(LocalGrid(_app(), 3, {"bagging": False}), EMPTY, num_rounds=1)
    traffic, size = strategy.ledger.of_round(1), len(result.arrays["0"].data)
    both = traffic.uplink_bytes + traffic.downlink_bytes
    size_text = format_bytes(both)
    assert f"together {size_text}, as much; {size_text} of it are uncompressed records" in flower_log.text
    assert traffic.uplink_bytes == traffic.dense_uplink_bytes == size
    assert traffic.downlink_bytes == traffic.dense_downlink_bytes == len(EMPTY["0"].data) + size, "trained, evaluated"


def test_a_second_start_goes_on_counting() -> None:
    rounds: list[Round] = []
    strategy = CompressedStrategy(FedXgbCyclic(), on_round=rounds.append)
    grid = LocalGrid(_app(), 3, {"bagging": False})
    first = strategy.start(grid, EMPTY, num_rounds=2)
    second = strategy.start(grid, first.arrays, num_rounds=1)
    assert [each.number for each in rounds] == [1, 2, 3]
    assert list(second.evaluate_metrics_clientapp) == [3]
    assert set(strategy.ledger.by_round()) == {1, 2, 3}


def test_a_second_start_from_another_model_counts_from_1_as_plain_flower_does(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    rounds: list[Round] = []
    strategy = CompressedStrategy(FedXgbCyclic(), on_round=rounds.append)
    first = _run(strategy, bagging=False)
    traffic, closing = strategy.ledger.total(), flower_log.messages[-1]
    flower_log.clear()
    assert _run(strategy, bagging=False) == first == _run(FedXgbCyclic(), bagging=False)
    assert [each.number for each in rounds] == [1, 2, 3, 4] * 2
    assert rounds[3].total == rounds[7].total == traffic == strategy.ledger.total()
    assert closing in flower_log.messages, "also the bytes of uncompressed records are those of one training"


def test_what_needs_a_published_model_is_refused(tmp_path: Path) -> None:
    strategy = CompressedStrategy(FedXgbCyclic(), checkpoint=Checkpoint(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="checkpoint"):
        strategy.start(LocalGrid(_app(), 3), EMPTY)
    for arrays, local in ((ArrayRecord(), []), (model(), ["*"]), (EMPTY, ["0"])):
        with pytest.raises(ValueError, match="no floating tensor"):
            CompressedStrategy(FedAvg(), local=local).start(LocalGrid(_app(), 3), arrays)
    text_model = ArrayRecord({"w": Array(np.array(["text"]))})
    with pytest.raises(ValueError, match="<U4"):
        CompressedStrategy(FedAvg()).start(LocalGrid(_app(), 3), text_model)


def test_the_dtypes_are_named_in_alphabetical_order(flower_log: pytest.LogCaptureFixture) -> None:
    dtypes = ("uint8", "int64", "int32", "int16", "bool")
    arrays = ArrayRecord({dtype: Array(np.zeros(2, dtype)) for dtype in dtypes})
    with pytest.raises(ValueError, match="argument records"):
        CompressedStrategy(FedAvg(), records={"more": fedcomp.stc()}).start(LocalGrid(_app(), 2), arrays)
    CompressedStrategy(FedXgbCyclic()).start(LocalGrid(_app(), 2), arrays, num_rounds=0)
    assert "the model holds bool, int16, int32, int64, uint8 alone" in flower_log.text
