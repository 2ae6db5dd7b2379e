"""Every method as uplink and as downlink, through absence and loss."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.serverapp.strategy import FedAvg, Strategy

import fedcomp
from fedcomp.flower import EF21, Checkpoint, CompressedStrategy, DynamicSampling, LocalGrid, records
from fedcomp.flower.local_grid import Fault
from fedcomp.methods import METHODS
from fedcomp.quantized.vectors import Dense
from fedcomp.sync import mean, updates
from fedcomp.sync.replica import start_replica
from fedcomp.wire import codec_ids
from fedcomp.wire.frame import FLAG_FIRST, SECONDS, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from tests.flower.attacks import Meddling, frame_of
from tests.flower.toy import Arrays, Watching, app, floats, model, state_of, sum_of_updates, training

pytestmark = pytest.mark.one_flower

UPLINKS = [name for name in METHODS if METHODS.about(name).uplink]
SMALL = {"cgx": "cgx(dense_below=100)"}  # the toy's matrix has 1000 entries
DOWNLINKS = [name for name in METHODS if METHODS.about(name).downlink]


def inner(text: str, **settings: Any) -> Strategy:
    settings = {"fraction_evaluate": 0.0} | settings
    return EF21(**settings) if fedcomp.parse(text).memory.incremental else FedAvg(**settings)


def run(up: str, down: str, rounds: int = 5, nodes: int = 4, **settings: Any) -> tuple[Any, LocalGrid]:
    random.seed(5)
    strategy = CompressedStrategy(inner(up, **settings), uplink=fedcomp.parse(up), downlink=fedcomp.parse(down), seed=3)
    grid = LocalGrid(app(), nodes)
    strategy.start(grid, model(), num_rounds=rounds)
    return strategy, grid


def held(context: Context) -> np.ndarray[Any, Any]:
    replica = state_of(context).held
    return replica.vector


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", UPLINKS)
def test_every_uplink_arrives_in_fewer_bytes_than_dense(name: str) -> None:
    strategy, _ = run(SMALL.get(name, name), "dense()", rounds=3)
    assert strategy.version == 3
    assert strategy.ledger.refused == 0
    assert np.isfinite(floats(strategy.arrays)).all()
    if name != "dense":
        assert strategy.ledger.uplink_bytes < 0.7 * strategy.ledger.dense_uplink_bytes


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", DOWNLINKS)
def test_every_downlink_keeps_all_nodes_at_the_published_model_to_the_bit(name: str) -> None:
    strategy, grid = run("topk", name, rounds=4, fraction_train=0.5)
    cast(FedAvg, strategy.inner).fraction_train = 1.0
    before = strategy.arrays
    strategy.start(grid, before, num_rounds=1)
    assert strategy.ledger.refused == 0, "no node sent RESYNC: every decoder gave the same bits"
    published = floats(before).astype(np.float32)
    for context in grid.contexts.values():
        assert held(context).tobytes() == published.tobytes()


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", UPLINKS)
def test_equal_seeds_give_equal_bytes_and_other_seeds_other_bytes(name: str) -> None:
    vectors = []
    for seed in (3, 3, 4):
        random.seed(5)
        strategy = CompressedStrategy(inner(name), uplink=fedcomp.parse(name), downlink=fedcomp.dense(), seed=seed)
        strategy.start(LocalGrid(app(), 2), model(), num_rounds=2)
        vectors.append(floats(strategy.arrays).tobytes())
    assert vectors[0] == vectors[1]
    drawn = {"auto", "randk", "qsgd", "ecqsgd", "natural", "natural_dithering", "terngrad", "powersgd"}
    drawn |= {"crosspolytope", "drive", "eden"}
    assert (vectors[0] != vectors[2]) == (name in drawn)


@pytest.mark.parametrize("name", [name for name in UPLINKS if fedcomp.parse(name).memory.vectors == ("residual",)])
def test_error_feedback_sends_or_keeps_all_of_the_asked_mass_whatever_is_lost(name: str) -> None:
    random.seed(1)
    watching = Watching(fraction_evaluate=0.0)
    strategy = CompressedStrategy(watching, uplink=fedcomp.parse(name), downlink=fedcomp.dense(), seed=3)
    grid = LocalGrid(app(), 3)
    grid.order(1, Fault.LOSE_REPLY, Fault.LOSE_REPLY)
    grid.order(2, Fault.LOSE_MESSAGE, Fault.DELIVER_TWICE, Fault.LOSE_REPLY)
    strategy.start(grid, model(), num_rounds=6)
    for node, context in grid.contexts.items():
        target = sum_of_updates(context)
        kept = state_of(context).memory["residual"]
        assert np.abs(watching.acked[node] + kept - target).max() < 1e-4 * max(1.0, float(np.abs(target).max()))


def test_ef21_without_compression_is_the_plain_mean_of_the_updates() -> None:
    strategy, grid = run("ef21(density=1.0, momentum=1.0)", "dense()", rounds=1)
    start = floats(model())
    first = [sum_of_updates(context) for context in grid.contexts.values()]
    assert np.allclose(floats(strategy.arrays) - start, np.mean(first, axis=0), atol=1e-6)
    before = floats(strategy.arrays)
    strategy.start(grid, strategy.arrays, num_rounds=1)
    later = [sum_of_updates(context) for context in grid.contexts.values()]
    step = np.mean([new - old for new, old in zip(later, first, strict=True)], axis=0)
    assert np.allclose(floats(strategy.arrays) - before, step, atol=1e-6), "the update, not the sum of increments"


def estimates_agree(strategy: CompressedStrategy, grid: LocalGrid) -> bool:
    """Return whether the server's sum equals the sum of the nodes' estimates."""
    inner = cast(EF21, strategy.inner)
    server = np.concatenate([inner.estimate[name].ravel() for name in ("layer.weight", "layer.bias")])
    states = [state_of(context).memory for context in grid.contexts.values()]
    held = [memory["estimate"] for memory in states if memory.get("estimate_epoch") == strategy.publisher.epoch]
    return bool(np.allclose(server, np.sum(held, axis=0, dtype=np.float64), atol=1e-5))


@pytest.mark.parametrize("fault", [*Fault])
def test_the_sum_of_ef21_equals_the_nodes_estimates_after_any_fault(fault: Fault) -> None:
    strategy, grid = run("ef21(density=0.2)", "dense()", rounds=2)
    assert estimates_agree(strategy, grid)
    before = strategy.publisher.epoch
    grid.order(2, fault)
    strategy.start(grid, strategy.arrays, num_rounds=4)
    assert (strategy.publisher.epoch != before) == (fault is Fault.FORGET)
    assert estimates_agree(strategy, grid)


def test_a_node_that_claims_in_each_round_to_have_lost_its_estimate_undoes_few_rounds() -> None:
    """All begin anew for it after 0, 4, 8, 16, ... versions; in all other rounds the others train without it."""

    def claims(reply: Message) -> list[Message]:
        frame = frame_of(reply)
        if frame.kind is Kind.UPDATE:
            reply.content["arrays"] = records.pack(replace(frame, flags=frame.flags | FLAG_FIRST).to_bytes())
        return [reply]

    strategy = CompressedStrategy(
        inner("ef21(density=0.5)"), uplink=fedcomp.parse("ef21(density=0.5)"), downlink=fedcomp.dense()
    )
    strategy.start(Meddling(claims, node=2, nodes=3), model(), num_rounds=40)
    assert strategy.version >= 35
    assert strategy.publisher.nodes[2].restarts <= 5


def test_the_sum_of_ef21_is_right_when_the_first_reply_after_a_lost_state_is_lost_too() -> None:
    strategy, grid = run("ef21(density=0.2)", "dense()", rounds=4)
    before = strategy.publisher.epoch
    grid.order(2, Fault.FORGET, Fault.LOSE_REPLY)
    strategy.start(grid, strategy.arrays, num_rounds=6)
    assert strategy.publisher.epoch != before
    assert estimates_agree(strategy, grid)


def test_estimates_start_from_zero_when_the_server_resumes_from_an_older_state(tmp_path: Path) -> None:
    strategy, grid = run("ef21(density=0.2)", "dense()", rounds=3)
    strategy.save(tmp_path / "old")
    strategy.start(grid, strategy.arrays, num_rounds=3)
    back = CompressedStrategy(
        inner("ef21", fraction_train=0.5), uplink=fedcomp.parse("ef21(density=0.2)"), downlink=fedcomp.dense()
    )
    back.load(tmp_path / "old")
    back.start(grid, back.arrays, num_rounds=8)
    cast(EF21, back.inner).fraction_train = 1.0
    back.start(grid, back.arrays, num_rounds=2)
    assert estimates_agree(back, grid)


def test_a_node_that_joins_later_is_counted_and_the_step_is_the_mean_over_all() -> None:
    strategy, _ = run("ef21(density=1.0, momentum=1.0)", "dense()", rounds=2, nodes=3)
    more = LocalGrid(app(), 5)
    before = floats(strategy.arrays)
    strategy.start(more, strategy.arrays, num_rounds=1)
    server = cast(EF21, strategy.inner).estimate
    step = np.concatenate([server[name].ravel() for name in ("layer.weight", "layer.bias")]) / 5
    assert np.allclose(floats(strategy.arrays) - before, step, atol=1e-6)


def test_updates_of_a_float16_model_reach_ef21_unrounded() -> None:
    update = np.zeros(1000, np.float32)
    update[::7] = 1e-4
    start_at = {"w": np.full((40, 25), 8, np.float16)}
    held = start_replica(layout_of(start_at), start_at)
    change, exact = mean.dense_change(updates.Update(Dense(update), b"", 0, 0), held.layout)
    assert np.array_equal(held.layout.unflatten_float64(change, exact)["w"].ravel(), update)
    model_64 = held.layout.unflatten_float64(change, exact, held.vector)["w"]
    assert not (model_64.astype(np.float16) - start_at["w"]).any()
    assert np.allclose(model_64.ravel() - 8, update, atol=1e-15)


def test_nodes_draw_different_random_numbers() -> None:
    """The error of a mean of unbiased messages falls with their number only if they are independent."""

    def same(given: Arrays, context: Context, _: int) -> Arrays:
        step = np.random.default_rng(0).standard_normal((40, 25)).astype(np.float32)
        return given | {"layer.weight": given["layer.weight"] + step}

    watching = Watching(fraction_evaluate=0.0)
    strategy = CompressedStrategy(watching, uplink=fedcomp.parse("terngrad"), downlink=fedcomp.dense())
    strategy.start(LocalGrid(training(same), 3), model(), num_rounds=1)
    sent = {vector.tobytes() for vector in watching.acked.values()}
    assert len(sent) == 3


def test_nodes_and_server_pass_the_tensors_shapes_to_the_compressor() -> None:
    _, grid = run("selective(density=0.01)", "selective(density=0.02)", rounds=1)
    frame = parse_single_frame(state_of(grid.contexts[1]).pending)
    indices = codec_ids.codec_by_id(frame.codec).decode(frame.payload[SECONDS.size : -8], n=1025).sparse().indices
    assert np.count_nonzero(indices >= 1000) == 1, "the bias sends its own largest entry"
    strategy, grid = run("dense()", "selective(density=0.02)", rounds=1)
    before, after = floats(model()), floats(strategy.arrays)
    assert np.count_nonzero((before != after)[1000:]) == 1


def test_regtopk_reads_the_aggregate_from_the_downlink() -> None:
    _, grid = run("regtopk(density=0.1, nodes=4)", "dense()", rounds=3)
    for context in grid.contexts.values():
        memory = state_of(context).memory
        assert memory["sent_round"].tolist() == [2]
        assert memory["sent_indices"].size == memory["sent_from"].size == 103


def test_a_warm_up_counts_the_servers_rounds() -> None:
    strategy, _ = run("dgc(density=0.001, warmup=4)", "dense()", rounds=6)
    sizes = [strategy.ledger.of_round(number).uplink_bytes for number in range(1, 7)]
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2]
    assert sizes[4] == pytest.approx(sizes[5], abs=8)


@pytest.mark.parametrize(
    ("up", "down", "strategy", "message"),
    [
        ("stc", "dgc", FedAvg(), "does not work as downlink"),
        ("stc", "ef21", FedAvg(), "does not work as downlink"),
        ("ef21", "stc", FedAvg(), "ef21.density=0.01. sends increments of an estimate, and FedAvg needs whole updates"),
        ("stc", "stc", EF21(), "sends whole updates, and EF21 needs increments"),
        ("stc", "stc", DynamicSampling(EF21(), beta=0.1), "sends whole updates, and EF21 needs increments"),
    ],
)
def test_a_strategy_and_compressors_that_do_not_fit_together_are_refused(
    up: str, down: str, strategy: Strategy, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CompressedStrategy(strategy, uplink=fedcomp.parse(up), downlink=fedcomp.parse(down))


def test_dgc_sends_a_bias_with_momentum_through_a_lost_reply_a_restart_and_an_absence(tmp_path: Path) -> None:
    """The matrix is selected from, the bias is sent whole: by 1, 1.9, 2.71 ... in each round, and none of it is lost."""

    def change(arrays: Arrays, *_: object) -> dict[str, Any]:
        return arrays | {name: arrays[name] + np.float32(1) for name in ("layer.weight", "layer.bias")}

    def begin() -> CompressedStrategy:
        uplink = fedcomp.dgc(density=0.05, warmup=0, scope="tensor", dense_below=1)
        inner = FedAvg(fraction_evaluate=0.0)
        return CompressedStrategy(
            inner, uplink=uplink, downlink=fedcomp.dense(), checkpoint=Checkpoint(tmp_path / "state")
        )

    strategy, grid = begin(), LocalGrid(training(change), 2)
    strategy.start(grid, model(), num_rounds=2)
    for node in grid.get_node_ids():
        grid.order(node, Fault.LOSE_REPLY)
    strategy.start(grid, model(), num_rounds=2)
    restarted = begin()
    restarted.load(tmp_path / "state")
    restarted.start(grid, model(), num_rounds=2)
    moved = restarted.arrays["layer.bias"].numpy()
    velocities = np.convolve(np.ones(6), 0.9 ** np.arange(6))[:6]
    np.testing.assert_allclose(moved, velocities.sum(), rtol=1e-6)
    weight = restarted.arrays["layer.weight"].numpy() - model()["layer.weight"].numpy()
    assert 0 < np.count_nonzero(weight > 0.5) <= 6 * 50
