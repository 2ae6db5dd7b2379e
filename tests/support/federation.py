"""One federation for each pair of features: it learns a known target, or a sentence refuses it before anything is sent."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import Checkpoint, CompressedStrategy, CompressionMod, LocalGrid, to_record
from fedcomp.wire import BFLOAT16, bfloat16_to_float32, float32_to_bfloat16, to_numpy

NODES, ROUNDS = 3, 5
LARGEST_DISTANCE = 0.9
"""The largest distance to the target at the end, in units of that of the first model."""
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Trait:
    """A trait of the model: its tensors, those that nodes train, and what else must hold of the result.

    `adjust` changes the trained tensors before a node replies; `check` gets the first and the last model.
    """

    arrays: Callable[[], Arrays]
    trained: tuple[str, ...] = ("weight", "bias")
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    adjust: Callable[[Arrays], Arrays] = lambda arrays: arrays
    check: Callable[[Arrays, Arrays], bool] = lambda first, last: True


@dataclass(frozen=True)
class Federation:
    """Settings of a run; `strategy` makes the inner strategy, and `settings` are those of `CompressedStrategy`."""

    uplink: str = "stc(density=0.3)"
    downlink: str = "dense()"
    trait: Trait = field(default_factory=lambda: Trait(plain))
    strategy: Callable[..., Strategy] = FedAvg
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    record: bool = False
    resumed: bool = False
    rounds: int = ROUNDS


def plain() -> Arrays:
    """Return a matrix and a vector."""
    rng = np.random.default_rng(0)
    return {"weight": rng.standard_normal((20, 30), np.float32), "bias": rng.standard_normal(30, np.float32)}


def _beside(**others: Any) -> Callable[[], Arrays]:
    return lambda: {**plain(), **{name: np.asarray(array) for name, array in others.items()}}


def _as(dtype: str) -> Callable[[], Arrays]:
    if dtype == "bfloat16":
        return lambda: {name: float32_to_bfloat16(array) for name, array in plain().items()}
    return lambda: {name: array.astype(dtype) for name, array in plain().items()}


MASK = np.random.default_rng(3).random((20, 30)) < 0.5
FROZEN = {"base": np.linspace(-1, 1, 400, dtype=np.float32).reshape(20, 20), "scale": np.float32(-0.0)}


def _same(*names: str) -> Callable[[Arrays, Arrays], bool]:
    return lambda first, last: all(first[name].tobytes() == last[name].tobytes() for name in names)


TRAITS = {
    "plain": Trait(plain),
    "frozen tensors": Trait(_beside(**FROZEN), check=_same(*FROZEN)),
    "masked tensors": Trait(
        lambda: plain() | {"weight": plain()["weight"] * MASK, "weight_mask": np.packbits(MASK.ravel())},
        adjust=lambda arrays: arrays | {"weight": arrays["weight"] * MASK},
        check=lambda first, last: not last["weight"][~MASK].any(),
    ),
    "local tensors": Trait(_beside(head=np.ones(5, np.float32)), settings={"local": ["head"]}, check=_same("head")),
    "tied tensors": Trait(
        lambda: plain() | {"output": plain()["weight"]},
        settings={"tied": [("weight", "output")]},
        adjust=lambda arrays: arrays | {"output": arrays["weight"]},
        check=lambda first, last: np.array_equal(last["weight"], last["output"]),
    ),
    "float16": Trait(_as("float16")),
    "bfloat16": Trait(_as("bfloat16")),
    "float64": Trait(_as("float64")),
    "integers and bools": Trait(
        _beside(steps=np.array(3, np.int64), flags=np.array([True, False])),
        adjust=lambda arrays: arrays | {"steps": np.asarray(arrays["steps"] + 1)},
        check=lambda first, last: int(last["steps"]) == int(first["steps"]) + ROUNDS,
    ),
    "BatchNorm statistics": Trait(
        _beside(**{"norm.running_mean": np.zeros(4, np.float32), "norm.num_batches_tracked": np.array(0)}),
        adjust=lambda arrays: arrays | {"norm.num_batches_tracked": np.asarray(arrays["norm.num_batches_tracked"] + 2)},
        check=lambda first, last: int(last["norm.num_batches_tracked"]) == 2 * ROUNDS,
    ),
    "empty and scalar tensors": Trait(
        _beside(empty=np.zeros((0, 3), np.float32), scalar=np.float32(0.5)), trained=("weight", "bias", "scalar")
    ),
    "names 0, 1, ...": Trait(lambda: dict(zip("01", plain().values(), strict=True)), trained=("0", "1")),
}


def values_of(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return the numbers in a floating array, bfloat16 included."""
    return (bfloat16_to_float32(array) if array.dtype == BFLOAT16 else array).astype(np.float64)


def targets(first: Arrays, names: Sequence[str], node: int) -> dict[str, NDArray[np.float64]]:
    """Return what a node learns: a target that all share, and a little of its own."""
    found: dict[str, NDArray[np.float64]] = {}
    for index, name in enumerate(names):
        shared, own = np.random.default_rng([7, index]), np.random.default_rng([8, index, node])
        shape = first[name].shape
        found[name] = values_of(first[name]) + shared.standard_normal(shape) + 0.1 * own.standard_normal(shape)
    return found


def app(trait: Trait, *, record: bool = False) -> ClientApp:
    """Return an app whose nodes go half of the way to their target in each round."""
    client_app, first = ClientApp(mods=[CompressionMod()]), trait.arrays()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = cast(ArrayRecord, message.content["arrays"])
        arrays = {name: to_numpy(array) for name, array in held(given).items()}
        node = int(context.node_config["partition-id"])
        for name, target in targets(first, trait.trained, node).items():
            half = values_of(arrays[name]) + 0.5 * (target - values_of(arrays[name]))
            dtype = arrays[name].dtype
            arrays[name] = float32_to_bfloat16(half.astype(np.float32)) if dtype == BFLOAT16 else half.astype(dtype)
        local = {name: array for name, array in first.items() if name not in arrays}
        trained = trait.adjust(local | arrays)
        content = RecordDict(
            {
                "arrays": to_record({name: trained[name] for name in first}),
                "metrics": MetricRecord({"num-examples": 1.0, "loss": 0.0}),
            }
        )
        if record:
            content["control"] = ArrayRecord({"c": Array(np.full(50, 2.0, np.float32))})
        return Message(content, reply_to=message)

    return client_app


def held(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


class SeesRecords(FedAvg):
    """FedAvg that keeps the further records of the replies."""

    records: int = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Count the records, and average the models."""
        replies = list(replies)
        for reply in replies:
            control = cast(ArrayRecord, reply.content["control"])
            np.testing.assert_allclose(control["c"].numpy(), 2.0, rtol=0.5)
            del reply.content["control"]
            self.records += 1
        return super().aggregate_train(server_round, replies)


def outcome(federation: Federation, folder: Path) -> str:
    """Return "" if the federation learns its target, or the sentence of the `ValueError` that refuses it.

    Raises `AssertionError` if it does neither: no third case is allowed.
    """
    try:
        strategy = _begin(federation, folder)
    except ValueError as error:
        return str(error)
    first = federation.trait.arrays()
    grid = LocalGrid(app(federation.trait, record=federation.record), NODES)
    try:
        if federation.resumed:
            strategy = _run(strategy, grid, first, federation.rounds // 2)
            again = _begin(federation, folder)
            again.load(folder / "checkpoint")
            strategy = _run(again, grid, first, federation.rounds - federation.rounds // 2)
        else:
            strategy = _run(strategy, grid, first, federation.rounds)
    except ValueError as error:
        if strategy.ledger.uplink_bytes:
            raise AssertionError("refused after nodes have trained") from error
        return str(error)
    assert strategy.version == federation.rounds
    assert not strategy.ledger.refused
    assert not strategy.ledger.failed
    assert not strategy.failed_rounds
    last = {name: to_numpy(array) for name, array in held(strategy.arrays).items()}
    assert federation.trait.check(first, last), "the trait does not hold at the end"
    distance = _distance(first, last, federation.trait.trained)
    assert distance < LARGEST_DISTANCE, f"{distance:.2f} of the distance to the target is left"
    return ""


def _begin(federation: Federation, folder: Path) -> CompressedStrategy:
    random.seed(1)
    settings: dict[str, Any] = {**federation.trait.settings, **federation.settings}
    if federation.resumed:
        settings["checkpoint"] = Checkpoint(folder / "checkpoint")
    return CompressedStrategy(
        federation.strategy(fraction_evaluate=0.0, min_available_nodes=NODES),
        uplink=fedcomp.parse(federation.uplink),
        downlink=fedcomp.parse(federation.downlink),
        **settings,
    )


def _run(strategy: CompressedStrategy, grid: LocalGrid, first: Arrays, rounds: int) -> CompressedStrategy:
    strategy.start(grid, to_record(first), num_rounds=rounds, train_config=ConfigRecord({}))
    return strategy


def _distance(first: Arrays, last: Arrays, names: Sequence[str]) -> float:
    """Return the distance of the last model to the mean target, over that of the first."""
    left = before = 0.0
    for name in names:
        target = np.mean([targets(first, names, node)[name] for node in range(NODES)], axis=0)
        keep = MASK if name + "_mask" in first else np.ones(target.shape, np.bool_)
        left += float(np.square(values_of(last[name]) - target)[keep].sum())
        before += float(np.square(values_of(first[name]) - target)[keep].sum())
    return math.sqrt(left / before)
