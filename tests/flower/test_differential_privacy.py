"""Flower's differential privacy: what a node sends keeps within the clipping norm, whatever was compressed before."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, DynamicSampling, LocalGrid
from fedcomp.flower.local_grid import Fault
from fedcomp.methods import METHODS
from tests.flower.toy import Aggregate, Messages, add_update, arrays_of, state_of, sum_of_updates

NODES, ROUNDS, CLIP = 3, 8, 0.5
UPLINKS = [name for name in METHODS if METHODS.about(name).uplink and name not in ("signsgd", "ef21")]
Mod = Callable[[Message, Context, Any], Message]


def model() -> ArrayRecord:
    rng = np.random.default_rng(1)
    arrays: dict[str, NDArray[Any]] = {
        "layer.weight": rng.standard_normal((40, 25), np.float32),
        "norm.running_mean": np.zeros(25, np.float32),
        "norm.num_batches_tracked": np.array(3, np.int64),
    }
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def whole(record: ArrayRecord) -> NDArray[np.float64]:
    """Return all floating tensors as one vector, statistics included."""
    return np.concatenate([record[name].numpy().astype(np.float64).ravel() for name in list(model())[:2]])


def weight(record: ArrayRecord) -> NDArray[np.float64]:
    return record["layer.weight"].numpy().astype(np.float64).ravel()


def recording(message: Message, context: Context, call_next: Any) -> Message:
    """A mod that keeps the sum of the updates that it sees, those of the mods behind it."""
    given = weight(cast(ArrayRecord, message.content["arrays"]))
    reply: Message = call_next(message, context)
    add_update(context, weight(cast(ArrayRecord, reply.content["arrays"])) - given)
    return reply


def app(*mods: Mod) -> ClientApp:
    """Return an app whose updates are of norm 2 and more, most of it in one direction from round to round."""
    client_app = ClientApp(mods=[CompressionMod(), recording])

    @client_app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        rng = np.random.default_rng([context.node_id, server_round])
        drift = np.random.default_rng(context.node_id)
        trained: dict[str, Array] = {}
        for name, array in arrays_of(cast(ArrayRecord, message.content["arrays"])).items():
            step = (drift.standard_normal(array.shape) + rng.standard_normal(array.shape)) * 0.05
            trained[name] = Array(np.asarray(array + (step if array.dtype.kind == "f" else 1)).astype(array.dtype))
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    return client_app


class Measuring(FedAvg):
    """FedAvg that measures the update of each reply, in each round against the clipping norm of its config."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.norms: list[list[float]] = []
        self.limits: list[float] = []
        self.given = np.empty(0)
        self.received: dict[int, NDArray[np.float64]] = {}

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        self.given = whole(arrays)
        self.limits.append(cast(float, config.get("clipping_norm", np.inf)))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        self.norms.append([])
        for reply in replies:
            update = whole(cast(ArrayRecord, reply.content["arrays"])) - self.given
            self.norms[-1].append(float(np.linalg.norm(update)))
            node = reply.metadata.src_node_id
            self.received[node] = self.received.get(node, 0.0) + update[:1000]
        return super().aggregate_train(server_round, replies)


def run(strategy: Strategy, uplink: str, *mods: Mod, faults: tuple[Fault, ...] = ()) -> tuple[Any, LocalGrid]:
    np.random.seed(7)  # Flower's noise comes from numpy's global generator
    compressed = CompressedStrategy(strategy, uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
    grid = LocalGrid(app(*mods), NODES)
    grid.order(1, *faults)
    compressed.start(grid, model(), num_rounds=ROUNDS)
    return compressed, grid


def fixed(inner: Strategy, clip: float = CLIP) -> Strategy:
    return DifferentialPrivacyClientSideFixedClipping(inner, 1e-6, clip, NODES)


def check_bounded(measuring: Measuring) -> None:
    """Check that every update of every round kept its bound, and that the bound was reached."""
    assert len(measuring.norms) == ROUNDS
    shares = [norm / limit for norms, limit in zip(measuring.norms, measuring.limits, strict=True) for norm in norms]
    assert len(shares) == NODES * ROUNDS
    assert max(shares) <= 1 + 1e-6
    assert max(shares) > 0.5


@pytest.mark.sample(8)
@pytest.mark.one_flower
@pytest.mark.parametrize("name", UPLINKS)
def test_no_update_is_longer_than_the_clipping_norm(name: str) -> None:
    measuring = Measuring()
    run(fixed(measuring), name, fixedclipping_mod)
    check_bounded(measuring)


def test_the_bound_follows_adaptive_clipping() -> None:
    measuring = Measuring()
    adaptive = DifferentialPrivacyClientSideAdaptiveClipping(
        measuring, 0.3, NODES, initial_clipping_norm=2.0, clipped_count_stddev=0.5
    )
    run(adaptive, "stc(density=0.05)", adaptiveclipping_mod)
    assert len(set(measuring.limits)) == ROUNDS
    check_bounded(measuring)


def test_the_bound_holds_inside_another_wrapper() -> None:
    measuring = Measuring()
    run(fixed(DynamicSampling(measuring, beta=0.0)), "topk(density=0.05)", fixedclipping_mod)
    check_bounded(measuring)


def test_the_bound_holds_for_an_app_that_does_not_clip() -> None:
    measuring = Measuring()
    run(fixed(measuring), "dense()")
    check_bounded(measuring)


def test_what_the_bound_holds_back_is_sent_later_and_lost_replies_return() -> None:
    measuring = Measuring()
    compressed, grid = run(fixed(measuring), "stc(density=0.05)", fixedclipping_mod, faults=(Fault.LOSE_REPLY,))
    assert compressed.ledger.missing == 1
    context = grid.contexts[1]
    memory = state_of(context).memory["residual"]
    np.testing.assert_allclose(measuring.received[1] + memory, sum_of_updates(context), atol=1e-4)
    assert np.linalg.norm(memory) > 2 * CLIP
    assert max(map(max, measuring.norms)) <= CLIP * (1 + 1e-6)


def test_counters_stay_as_published_under_a_clipping_norm() -> None:
    compressed, _ = run(fixed(Measuring()), "stc(density=0.05)", fixedclipping_mod)
    assert compressed.arrays["norm.num_batches_tracked"].numpy() == 3
    assert compressed.arrays["norm.running_mean"].numpy().any()
    compressed, _ = run(Measuring(), "stc(density=0.05)")
    assert compressed.arrays["norm.num_batches_tracked"].numpy() == 3 + ROUNDS


def test_nothing_is_lost_under_the_bound() -> None:
    compressed, grid = run(fixed(Measuring()), "topk(density=0.05)", fixedclipping_mod)
    received = NODES * (weight(compressed.arrays) - weight(model()))
    asked = sum(sum_of_updates(context) for context in grid.contexts.values())
    kept = sum(state_of(context).memory["residual"] for context in grid.contexts.values())
    np.testing.assert_allclose(received + kept, asked, atol=1e-4)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 1e-6, CLIP, NODES),
        lambda inner: DifferentialPrivacyServerSideAdaptiveClipping(
            inner, 0.3, NODES, initial_clipping_norm=CLIP, clip_norm_lr=1e-9, clipped_count_stddev=0.5
        ),
    ],
    ids=["fixed", "adaptive"],
)
def test_clipping_on_the_server_sees_each_decoded_update(wrap: Callable[[Strategy], Strategy]) -> None:
    measuring = Measuring()
    run(wrap(measuring), "eden(bits=1)")
    assert [len(norms) for norms in measuring.norms] == [NODES] * ROUNDS
    assert max(map(max, measuring.norms)) <= CLIP * (1 + 1e-6)
    assert min(map(min, measuring.norms)) > 0.9 * CLIP, "every update was longer and was clipped"


def test_under_local_noise_only_noised_updates_are_compressed() -> None:
    compressed, grid = run(Measuring(), "topk(density=0.05)", LocalDpMod(0.5, 0.1, 10.0, 1e-5))
    received = NODES * (weight(compressed.arrays) - weight(model()))
    noised = sum(sum_of_updates(context) for context in grid.contexts.values())
    kept = sum(state_of(context).memory["residual"] for context in grid.contexts.values())
    np.testing.assert_allclose(received + kept, noised, atol=1e-4)


def test_a_method_of_fixed_step_is_refused_under_a_clipping_norm() -> None:
    with pytest.raises(ValueError, match="signsgd.*DifferentialPrivacyClientSideFixedClipping"):
        CompressedStrategy(fixed(FedAvg()), uplink=fedcomp.signsgd(), downlink=fedcomp.dense())
    with pytest.raises(ValueError, match="increments"):
        CompressedStrategy(fixed(FedAvg()), uplink=fedcomp.ef21(), downlink=fedcomp.dense())


@pytest.mark.parametrize(("norm", "bounded"), [(0.25, True), (0, False), (-1.0, False), ("0.25", False)])
def test_a_clipping_norm_of_the_apps_own_config_bounds_if_it_is_one(norm: float | str, bounded: bool) -> None:
    measuring = Measuring()
    strategy = CompressedStrategy(measuring, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(LocalGrid(app(), NODES), model(), 1, train_config=ConfigRecord({"clipping_norm": norm}))
    assert (max(measuring.norms[0]) <= 0.25 * (1 + 1e-6)) is bounded


def test_the_log_names_the_clipping_norm_once(flower_log: pytest.LogCaptureFixture) -> None:
    run(fixed(Measuring()), "stc(density=0.05)", fixedclipping_mod)
    lines = [record.getMessage() for record in flower_log.records if "fedcomp: clipping_norm" in record.getMessage()]
    assert len(lines) == 1
    assert str(CLIP) in lines[0]


def test_a_clipping_norm_that_no_strategy_of_flower_has_sent_is_a_warning(flower_log: pytest.LogCaptureFixture) -> None:
    strategies = (FedAvg(fraction_evaluate=0.0), fixed(FedAvg(fraction_evaluate=0.0)))
    for inner, warned in zip(strategies, (True, False), strict=True):
        flower_log.clear()
        config = ConfigRecord({"clipping_norm": CLIP})
        CompressedStrategy(inner).start(LocalGrid(app(fixedclipping_mod), NODES), model(), 2, train_config=config)
        lines = [record for record in flower_log.records if "fedcomp: clipping_norm" in record.getMessage()]
        assert [record.levelname for record in lines] == ["WARNING" if warned else "INFO"]
        assert ("another key" in lines[0].getMessage()) is warned


@pytest.mark.parametrize(
    "wrap",
    [
        fixed,
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 1e-6, CLIP, NODES),
        lambda inner: DifferentialPrivacyClientSideAdaptiveClipping(inner, 0.0, NODES),
        lambda inner: DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.0, NODES),
        lambda inner: fixed(fixed(inner)),
    ],
    ids=["client fixed", "server fixed", "client adaptive", "server adaptive", "twice"],
)
def test_the_wrong_order_of_wrappers_is_refused_in_the_first_round(wrap: Callable[[Strategy], Strategy]) -> None:
    grid = LocalGrid(app(), NODES)
    with pytest.raises(ValueError, match=r"swap them: CompressedStrategy\(DifferentialPrivacy\w+\(\.\.\.\)\)"):
        wrap(CompressedStrategy(FedAvg())).start(grid, model(), 1)
    assert not grid.seconds, "no node was asked"


def test_an_update_that_is_too_long_is_refused_and_named(flower_log: pytest.LogCaptureFixture) -> None:
    class Unbounded(CompressionMod):
        """As nodes with an older version: it does not see the clipping norm."""

        def __call__(self, message: Message, context: Context, call_next: Any) -> Message:
            config = cast(ConfigRecord, message.content["config"])
            if context.node_id == 2:
                del config["clipping_norm"]
            return super().__call__(message, context, call_next)

    client_app = ClientApp(mods=[Unbounded()])

    @client_app.train()
    def train(message: Message, _: Context) -> Message:
        arrays = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        arrays["layer.weight"] = arrays["layer.weight"] + np.float32(0.1)
        trained = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    strategy = CompressedStrategy(fixed(FedAvg(fraction_evaluate=0.0)), uplink=fedcomp.dense())
    strategy.start(LocalGrid(client_app, NODES), model(), 1)
    assert strategy.ledger.refused == 1
    assert "node 2 is dropped: its update has norm 3.16" in flower_log.text
    assert strategy.version == 0, "Flower skips a round with an error, so nothing is published"


def test_the_example_in_the_guide_runs_and_keeps_its_bound(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "privacy.md"
    (example,) = re.findall(r"^```python\n(# private_server.py\n.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "private_server.py"
    file.write_text(example)
    strategy: CompressedStrategy = runpy.run_path(str(file))["strategy"]
    strategy.start(LocalGrid(app(fixedclipping_mod), 10), model(), 2)
    assert strategy.version == 2
    assert strategy.ledger.refused == strategy.ledger.failed == 0
    assert strategy.ledger.dense_uplink_bytes > 10 * strategy.ledger.uplink_bytes


def test_nodes_may_have_clipping_norms_of_their_own() -> None:
    class Own(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            for message in super().configure_train(server_round, arrays, config, grid):
                norm = CLIP * message.metadata.dst_node_id
                own = ConfigRecord({"server-round": server_round, "clipping_norm": norm})
                message.content = RecordDict({"arrays": arrays, "config": own})
                yield message

    compressed, _ = run(Own(fraction_evaluate=0.0), "dense()")
    assert compressed.ledger.refused == 0
