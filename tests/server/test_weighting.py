"""The setting `weighting`: means over examples, or plain means over nodes."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.app import weights_of
from fedcomp.flower import CompressionMod, LocalGrid
from server.app import open_run
from server.settings import Settings

EXAMPLES = {1: 97, 2: 1, 3: 1, 4: 1}


def first_model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(3, np.float32))})


def node_app() -> ClientApp:
    """Node 1 answers with ones, every other node with zeros: the mean is the weight of node 1."""
    app = ClientApp(mods=[CompressionMod(start=lambda _: first_model())])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        value = float(context.node_id == 1)
        metrics = weights_of(context.run_config, EXAMPLES[context.node_id]) | {"loss": value}
        arrays = ArrayRecord({"w": Array(np.full(3, value, np.float32))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(dict(metrics))}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = weights_of(context.run_config, EXAMPLES[context.node_id]) | {"loss": float(context.node_id == 1)}
        return Message(RecordDict({"metrics": MetricRecord(dict(metrics))}), reply_to=message)

    return app


@pytest.mark.parametrize("strategy", ["fedavg", "fedavgm", "fedprox"])
@pytest.mark.parametrize(("weighting", "weight"), [("examples", 0.97), ("uniform", 0.25)])
def test_a_node_with_97_of_100_examples_counts_97_percent_or_a_quarter_of_four_nodes(
    settings: Callable[..., Settings], strategy: str, weighting: str, weight: float
) -> None:
    chosen = settings(
        strategy=strategy,
        weighting=weighting,
        fraction_train=1.0,
        fraction_evaluate=1.0,
        uplink="dense()",
        downlink="dense()",
    )
    _, compressed = open_run(chosen, int)
    grid = LocalGrid(node_app(), len(EXAMPLES), dict(chosen.to_config()))
    result = compressed.start(grid, first_model(), num_rounds=1)
    np.testing.assert_allclose(compressed.arrays["w"].numpy(), weight, rtol=1e-6)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(weight)
    assert result.evaluate_metrics_clientapp[1]["loss"] == pytest.approx(weight)
