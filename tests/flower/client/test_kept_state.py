"""An app may do with its ``Context.state`` what Flower allows: no bit of the training changes."""

import copy
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import (
    CompressedStrategy,
    CompressionMod,
    LocalGrid,
    load_training_state,
    save_training_state,
    to_record,
)
from fedcomp.flower.split import SplitClient
from tests.flower.split.app import Run, start
from tests.flower.split.app import grid as split_grid
from tests.flower.toy import arrays_of, client_state_of

NODES, ROUNDS = 2, 3
TOPK = fedcomp.topk(density=0.25)
MINE = {"mine": ConfigRecord({"a": 1})}


def _assign(context: Context) -> None:
    context.state = RecordDict(MINE.copy())  # type: ignore[arg-type]


def _assign_nothing(context: Context) -> None:
    context.state = RecordDict()


def _copy(context: Context) -> None:
    context.state = context.state.copy()
    context.state.update(MINE)


def _copy_deeply(context: Context) -> None:
    context.state = RecordDict(dict(copy.deepcopy(dict(context.state.items()))))
    context.state.update(MINE)


def _clear(context: Context) -> None:
    context.state.clear()
    context.state.update(MINE)


def _delete_each(context: Context) -> None:
    for key in list(context.state):
        del context.state[key]


def _replace_each(context: Context) -> None:
    for key in list(context.state):
        context.state[key] = ArrayRecord({"w": Array(np.zeros(3))})


def _empty_each(context: Context) -> None:
    for record in context.state.values():
        cast(dict[str, Any], record).clear()


def _assign_and_clear_the_old_one(context: Context) -> None:
    old = context.state
    context.state = RecordDict(MINE.copy())  # type: ignore[arg-type]
    old.clear()


Habit = Callable[[Context], None]
HABITS: list[Habit] = [
    _assign,
    _assign_nothing,
    _copy,
    _copy_deeply,
    _clear,
    _delete_each,
    _replace_each,
    _empty_each,
    _assign_and_clear_the_old_one,
]
HANDLERS = ["train", "evaluate", "query"]
STORES = ["Context.state", "in memory", "state-dir"]


def app(habit: Habit | None, where: str, mod: CompressionMod | None = None) -> ClientApp:
    """Return an app that adds 1 to 8 entries, and in the handler `where` treats its state by `habit`."""
    client_app = ClientApp(mods=[mod or CompressionMod()])

    def behave(handler: str, context: Context) -> None:
        assert not [key for key in context.state if key.startswith("fedcomp")], "an app may read all of its state"
        if habit is not None and handler == where:
            habit(context)

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        behave("train", context)
        trained = ArrayRecord({name: Array(array + np.float32(1)) for name, array in given.items()})
        content = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        behave("evaluate", context)
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    @client_app.query()
    def query(message: Message, context: Context) -> Message:
        behave("query", context)
        return Message(RecordDict(), reply_to=message)

    client_app.query("split")(SplitClient(start))
    return client_app


def grid_of(client_app: ClientApp, store: str, path: Path) -> LocalGrid:
    """Return a grid whose nodes keep their state in `store`."""

    def config(node: int) -> UserConfig:
        return {"state-dir": str(path / str(node))} if store == "state-dir" else {}

    return LocalGrid(client_app, NODES, node_config=config, in_memory=store == "in memory")


def train(grid: LocalGrid) -> tuple[list[float], list[float]]:
    """Train for some rounds, with a query after each; return the entries of the model, and of the residuals."""
    random.seed(1)
    strategy = CompressedStrategy(FedAvg(), uplink=TOPK, downlink=TOPK)
    for _ in range(ROUNDS):
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(8, np.float32))}), num_rounds=1)
        grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.contexts])
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    assert strategy.version == ROUNDS
    residuals = [client_state_of(context).subscriber.memory["residual"] for context in grid.contexts.values()]
    return arrays_of(strategy.arrays)["w"].tolist(), np.concatenate(residuals).tolist()


@cache
def _expected() -> tuple[list[float], list[float]]:
    return train(LocalGrid(app(None, ""), NODES))


@pytest.mark.sample(18)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("where", HANDLERS)
@pytest.mark.parametrize("habit", HABITS)
def test_training_is_the_same_to_the_bit(habit: Habit, where: str, store: str, tmp_path: Path) -> None:
    grid = grid_of(app(habit, where), store, tmp_path)
    assert train(grid) == _expected()
    alone = Context(1, 1, {}, RecordDict(), {})
    habit(alone)
    for context in grid.contexts.values():
        left = {key: record for key, record in context.state.items() if key.split(".")[0] != "fedcomp"}
        assert left == dict(alone.state.items()), "the app's own records are as it left them"


def test_a_model_of_the_nodes_own_may_be_made_by_an_app_that_clears_its_state() -> None:
    first = {"w": np.arange(1000, dtype=np.float32)}

    def make(context: Context) -> Mapping[str, NDArray[np.float32]]:
        context.state = RecordDict(MINE.copy())  # type: ignore[arg-type]
        return first

    grid = LocalGrid(app(None, "", CompressionMod(make)), NODES)
    strategy = CompressedStrategy(FedAvg(), uplink=TOPK, downlink=TOPK, shared_start=True)
    strategy.start(grid, to_record(first), num_rounds=ROUNDS)
    ledger = strategy.ledger.total()
    assert (ledger.failed, ledger.refused) == (0, 0)
    assert ledger.first_model_bytes < first["w"].nbytes / 10, "the model is not sent"
    assert all("mine" in context.state for context in grid.contexts.values())


@pytest.mark.sample(1)
@pytest.mark.parametrize("store", STORES)
def test_the_state_of_split_learning_outlives_it_too(store: str, tmp_path: Path) -> None:
    runs = [Run(), Run()]
    grids = [grid_of(app(habit, "query"), store, tmp_path / str(index)) for index, habit in enumerate((None, _assign))]
    for run, grid in zip(runs, grids, strict=True):
        for _ in range(2):
            run.training.run(grid, num_rounds=1)
            grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.contexts])
    without_mod, plain = Run(), split_grid(NODES)
    for _ in range(2):
        without_mod.training.run(plain, num_rounds=1)
    for run in runs:
        assert run.bits() == without_mod.bits() != Run().bits()
        assert run.training.traffic.first_bytes == without_mod.training.traffic.first_bytes, "each sample in full once"


def test_one_node_does_both_and_a_handler_of_split_messages_keeps_the_other_state() -> None:
    client, client_app = SplitClient(start), ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        trained = ArrayRecord({name: Array(array + np.float32(1)) for name, array in arrays.items()})
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    @client_app.query("split")
    def answer(message: Message, context: Context) -> Message:
        reply = client(message, context)
        context.state = context.state.copy()
        context.state.pop("fedcomp", None)
        return reply

    nodes, plain, run, alone = LocalGrid(client_app, NODES), split_grid(NODES), Run(), Run()
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=TOPK)
    for _ in range(2):
        strategy.start(nodes, ArrayRecord({"w": Array(np.zeros(8, np.float32))}), num_rounds=1)
        run.training.run(nodes, num_rounds=1)
        alone.training.run(plain, num_rounds=1)
    assert run.bits() == alone.bits()
    ledger = strategy.ledger.total()
    assert ledger.dense_uplink_bytes == ledger.dense_downlink_bytes, "no node lost its model: each sent two updates"


@pytest.mark.parametrize("store", STORES)
def test_training_state_that_is_saved_after_the_state_was_assigned_comes_back(store: str, tmp_path: Path) -> None:
    rounds: list[int] = []

    def habit(context: Context) -> None:
        kept, last = load_training_state(context.state)
        rounds.append(last)
        momentum = kept.get("momentum", {"w": torch.zeros(8)})["w"] + 1
        context.state = RecordDict(MINE.copy())  # type: ignore[arg-type]
        save_training_state(context.state, {"momentum": {"w": momentum}}, last + 1)

    grid = grid_of(app(habit, "train"), store, tmp_path)
    assert train(grid) == _expected()
    assert rounds == [number for number in range(ROUNDS) for _ in range(NODES)]
    for context in grid.contexts.values():
        assert load_training_state(context.state)[0]["momentum"]["w"].tolist() == [ROUNDS] * 8
