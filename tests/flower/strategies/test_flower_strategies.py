"""Flower's own strategies, wrapped: with `dense` they give the unwrapped results, with STC they train."""

import random
from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    Strategy,
)
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, FedAMS, LocalGrid, QcmdAdagrad, QrdaAdagrad
from tests.flower.toy import Recording, arrays_of

NODES, FEATURES = 8, 120
TRUTH = np.random.default_rng(5).standard_normal(FEATURES).astype(np.float32)
SETTINGS = {"fraction_train": 0.75, "fraction_evaluate": 0.5}
Make = Callable[..., Strategy]
STRATEGIES: dict[str, Make] = {
    "FedAvg": FedAvg,
    "FedAvgM": lambda **s: FedAvgM(server_momentum=0.5, server_learning_rate=0.7, **s),
    "FedAdam": lambda **s: FedAdam(eta=0.05, **s),
    "FedYogi": lambda **s: FedYogi(eta=0.05, **s),
    "FedAdagrad": lambda **s: FedAdagrad(eta=0.1, **s),
    "FedProx": lambda **s: FedProx(proximal_mu=0.1, **s),
    "FedMedian": FedMedian,
    "FedTrimmedAvg": FedTrimmedAvg,
    "FedAMS": lambda **s: FedAMS(eta=0.03, **s),
    "QCMD AdaGrad": lambda **s: QcmdAdagrad(eta=0.4, **s),
    "QRDA AdaGrad": lambda **s: QrdaAdagrad(eta=0.4, **s),
    "Krum": lambda **s: Krum(num_malicious_nodes=1, **s),
    "Bulyan": lambda **s: Bulyan(num_malicious_nodes=0, **s),
    "differential privacy": lambda **s: DifferentialPrivacyServerSideFixedClipping(
        FedAvg(**s), noise_multiplier=0.0, clipping_norm=0.5, num_sampled_clients=6
    ),
}


@cache
def _data(node: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the samples of a node: linear regression, each node in its own region."""
    rng = np.random.default_rng(node)
    x = (rng.standard_normal((40, FEATURES)) * rng.uniform(0.2, 1.5, FEATURES)).astype(np.float32)
    noise = np.float32(0.01) * rng.standard_normal(40, np.float32)
    return x, (x @ TRUTH + noise).astype(np.float32)


def _loss(weights: NDArray[np.float32]) -> float:
    return float(np.mean([np.mean((x @ weights - y) ** 2) for x, y in map(_data, range(1, NODES + 1))]))


def _app() -> ClientApp:
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        config = cast(ConfigRecord, message.content["config"])
        x, y = _data(context.node_id)
        weights = given["weights"].copy()
        for _ in range(5):
            pull = cast(float, config.get("proximal-mu", 0.0)) * (weights - given["weights"])
            weights -= 0.02 * (x.T @ (x @ weights - y) / len(y) + pull)
        record = ArrayRecord({"weights": Array(weights)})
        if "steps" in given:
            record["steps"] = Array(np.asarray(given["steps"] + 5))
        metrics = MetricRecord({"num-examples": 10 * context.node_id, "loss": float(np.mean((x @ weights - y) ** 2))})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        x, y = _data(context.node_id)
        loss = float(np.mean((x @ cast(ArrayRecord, message.content["arrays"])["weights"].numpy() - y) ** 2))
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": context.node_id, "loss": loss})}), reply_to=message
        )

    return app


def _initial(*, counter: bool = True) -> ArrayRecord:
    record = ArrayRecord({"weights": Array(np.zeros(FEATURES, np.float32))})
    if counter:
        record["steps"] = Array(np.array([0], np.int64))
    return record


@pytest.mark.sample(7)
@pytest.mark.every_case
@pytest.mark.parametrize("name", STRATEGIES)
def test_wrapped_with_dense_both_ways_the_results_are_those_of_the_unwrapped_strategy(name: str) -> None:
    counter = name != "differential privacy"  # Flower's clipping refuses integers, wrapped or not
    results = []
    for wrap in (False, True):
        random.seed(3)
        strategy = STRATEGIES[name](**SETTINGS)
        if wrap:
            strategy = CompressedStrategy(strategy, uplink=fedcomp.dense(), downlink=fedcomp.dense())
        results.append(strategy.start(LocalGrid(_app(), NODES), _initial(counter=counter), num_rounds=4))
    plain, wrapped = results
    np.testing.assert_allclose(wrapped.arrays["weights"].numpy(), plain.arrays["weights"].numpy(), rtol=2e-4, atol=2e-5)
    if counter:
        assert wrapped.arrays["steps"].dtype == "int64", "the published model keeps the layout's dtypes"
        # Rounded each round, where plain Flower carries a float on.
        assert wrapped.arrays["steps"].numpy() == pytest.approx(plain.arrays["steps"].numpy(), abs=1)
    for server_round in range(1, 5):
        mine, theirs = wrapped.train_metrics_clientapp[server_round], plain.train_metrics_clientapp[server_round]
        assert dict(mine) == pytest.approx(dict(theirs), rel=1e-3), "train metrics see every reply"
        mine, theirs = wrapped.evaluate_metrics_clientapp[server_round], plain.evaluate_metrics_clientapp[server_round]
        assert dict(mine) == pytest.approx(dict(theirs), rel=1e-3)


@pytest.mark.sample(4)
@pytest.mark.one_flower
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "differential privacy"])
def test_wrapped_with_stc_trains(name: str) -> None:
    random.seed(3)
    stc = fedcomp.stc(density=0.2)
    inner = STRATEGIES[name](fraction_train=0.5, fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=stc, downlink=stc)
    result = strategy.start(LocalGrid(_app(), NODES), _initial(), num_rounds=30)
    assert _loss(result.arrays["weights"].numpy()) < 0.25 * _loss(np.zeros(FEATURES, np.float32))


def test_sums_do_not_depend_on_the_order_of_replies() -> None:
    finals = []
    for seed in (1, 2):
        random.seed(seed)  # all nodes are drawn, in another order
        strategy = CompressedStrategy(FedAvg(fraction_train=1.0, fraction_evaluate=0.0), uplink=fedcomp.dense())
        finals.append(strategy.start(LocalGrid(_app(), NODES), _initial(), num_rounds=4).arrays["weights"].numpy())
    np.testing.assert_array_equal(finals[0], finals[1])


def test_a_subclass_with_its_own_aggregate_train_gets_every_reply() -> None:
    inner = Recording()
    CompressedStrategy(inner).start(LocalGrid(_app(), NODES), _initial(), num_rounds=2)
    assert len(inner.replies) == 2 * NODES


def test_a_users_metrics_function_gets_every_reply_once() -> None:
    calls = []

    def gather(contents: list[RecordDict], key: str) -> MetricRecord:
        calls.append(len(contents))
        return MetricRecord({"replies": len(contents)})

    inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, train_metrics_aggr_fn=gather)
    result = CompressedStrategy(inner).start(LocalGrid(_app(), NODES), _initial(), num_rounds=2)
    assert calls == [NODES, NODES]
    assert result.train_metrics_clientapp[2]["replies"] == NODES
