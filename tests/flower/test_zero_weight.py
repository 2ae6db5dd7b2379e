"""An update of weight 0 does not count in a mean, so it goes back to its node: nothing that the node owes is lost."""

from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedMedian, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, DynamicSampling, LocalGrid
from tests.flower.toy import Arrays, arrays_of, state_of

ENTRIES = 100
LEARNED = np.linspace(1, 2, ENTRIES, dtype=np.float32)


def _record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def _first() -> ArrayRecord:
    return _record({"w": np.zeros(ENTRIES, np.float32), "b": np.zeros(1, np.float32)})


def _app(rounds_without_examples: range) -> ClientApp:
    """Return an app in which only node 1 learns `w`, in the first round; in some rounds it has no examples.

    All nodes add to `b`: Flower's clipping divides by the norm of an update.
    """
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        first = context.node_id == 1
        trained = {"w": arrays["w"] + LEARNED if first and server_round == 1 else arrays["w"], "b": arrays["b"] + 5}
        count = 0 if first and server_round in rounds_without_examples else 10
        metrics = MetricRecord({"num-examples": count})
        return Message(RecordDict({"arrays": _record(trained), "metrics": metrics}), reply_to=message)

    return app


def _private(inner: Strategy) -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1e9, 2)


@pytest.mark.parametrize("wrap", [lambda inner: inner, lambda inner: DynamicSampling(inner, beta=0.0), _private])
@pytest.mark.parametrize("without", [range(0), range(2, 7), range(5, 40)])
def test_what_a_node_owes_arrives_once_it_has_examples_again(wrap: Any, without: range) -> None:
    strategy = CompressedStrategy(
        wrap(FedAvg(fraction_evaluate=0.0)), uplink=fedcomp.topk(density=0.1, values="fp32"), downlink=fedcomp.dense()
    )
    grid = LocalGrid(_app(without), 2)
    strategy.start(grid, _first(), num_rounds=20)
    arrived = arrays_of(strategy.arrays)["w"]
    (owed,) = (array for array in state_of(grid.contexts[1]).memory.values() if array.size == ENTRIES + 1)
    if without != range(5, 40):
        assert not owed[:ENTRIES].any()
        np.testing.assert_allclose(arrived, LEARNED / 2, rtol=1e-5)
    else:
        assert np.count_nonzero(arrived) == 4 * ENTRIES // 10, "ten entries, and that of b, in each of four rounds"


def test_where_updates_have_no_weights_each_of_them_counts() -> None:
    strategy = CompressedStrategy(
        FedMedian(fraction_evaluate=0.0), uplink=fedcomp.topk(density=0.1, values="fp32"), downlink=fedcomp.dense()
    )
    strategy.start(LocalGrid(_app(range(2, 20)), 2), _first(), num_rounds=12)
    np.testing.assert_allclose(arrays_of(strategy.arrays)["w"], LEARNED / 2, rtol=1e-5)
