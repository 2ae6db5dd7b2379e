"""The automatic choice in a federation: what nodes are sent, what is logged, and what a restarted server remembers."""

import random
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, Krum, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.core import Arrays as Saved
from fedcomp.core import read_archive, to_json, write_archive
from fedcomp.core.files import from_json
from fedcomp.errors import CorruptError
from fedcomp.flower import (
    AsyncMode,
    Checkpoint,
    Clipping,
    CompressedStrategy,
    FedAMS,
    LocalGrid,
    QrdaAdagrad,
    Round,
    Speeds,
    records,
    to_record,
)
from fedcomp.flower.server.links.choice import LinkCompressors
from fedcomp.flower.server.links.demand import Demand
from fedcomp.flower.server.links.measurements import LATE_AFTER_PAUSE, winsorized_mean
from fedcomp.flower.server.links.noise_budget import NoiseBudget
from fedcomp.flower.server.links.repetition import FIRST_PAUSE
from fedcomp.methods import FLAT as FLAT_SHARE
from fedcomp.methods import Choice, RoundFacts, choose_uplink
from fedcomp.methods.automatic import UNPUBLISHED_OF_ALL
from fedcomp.sync import Publisher
from fedcomp.wire import parse_server_message
from tests.flower.toy import Arrays, app, checkpoint_at, floats, model, training

pytestmark = pytest.mark.one_flower

NODES = 6
VECTOR = np.random.default_rng(0).standard_normal(3660, np.float32)


FLAT = to_record({"w": np.zeros(3_660, np.float32)})


class RecordingGrid(LocalGrid):
    """A grid that keeps the compressor that each message asks for; `per_round` has one text a round."""

    def __init__(self, client_app: ClientApp | None = None, nodes: int = NODES) -> None:
        super().__init__(client_app or app(), nodes, in_memory=True)
        self.per_round: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver `messages`, and keep the texts of those that train."""
        messages = list(messages)
        texts: set[str] = set()
        for message in messages:
            packed = records.packed(message.content)
            if packed is not None and message.metadata.message_type.startswith("train"):
                texts.add(parse_server_message(packed[1])[0].uplink)
        self.per_round += texts
        return super().push_messages(messages)


class Stopped(Exception):
    """The server's process ends."""


def stop_after(last: int) -> Callable[[int, object], None]:
    """Return a function for the evaluation of each round that ends the server after round `last`."""

    def stop(number: int, _: object) -> None:
        if number == last:
            raise Stopped

    return stop


def run(
    rounds: int,
    inner: Strategy | None = None,
    side: int = 60,
    checkpoint: Path | None = None,
    grid: RecordingGrid | None = None,
    stop: int | None = None,
) -> tuple[CompressedStrategy, RecordingGrid]:
    """Run `rounds` rounds, or the first `stop` of them."""
    random.seed(3)
    strategy = CompressedStrategy(inner or FedAvg(fraction_evaluate=0.0), checkpoint=checkpoint_at(checkpoint))
    grid = grid or RecordingGrid()
    with nullcontext() if stop is None else pytest.raises(Stopped):
        evaluate = None if stop is None else stop_after(stop)
        strategy.start(grid, model((side, side)), num_rounds=rounds, evaluate_fn=evaluate)
    return strategy, grid


def bits_of(text: str) -> float:
    return float(str(dict(fedcomp.parse(text).settings)["bits"]))


def density_of(text: str) -> float:
    return float(str(dict(fedcomp.parse(text).settings)["density"]))


def names(texts: list[str]) -> list[str]:
    return [fedcomp.parse(text).name for text in texts]


def test_it_is_the_default_and_nodes_get_the_choice_as_text() -> None:
    strategy, grid = run(5)
    assert strategy.uplink == strategy.downlink == fedcomp.auto()
    assert len(grid.per_round) == 5
    assert set(names(grid.per_round)) == {"eden"}
    assert strategy.ledger.ratio > 4


def half() -> FedAvg:
    """Return a strategy that asks half of the nodes in each round."""
    return FedAvg(fraction_train=0.5, fraction_evaluate=0.0)


def test_in_many_rounds_versions_take_stc() -> None:
    averaged, grid = run(150, half(), stop=3)
    assert averaged.compressors[1].startswith("stc(")
    assert "stc" not in names(grid.per_round)


def few(evaluate: float = 0.0) -> FedAvg:
    """Return a strategy that asks few of many nodes in each round."""
    return FedAvg(fraction_train=0.125, fraction_evaluate=evaluate)


def test_in_a_short_run_with_few_nodes_versions_are_sent_as_sums_and_the_last_leaves_nothing_out() -> None:
    densities, left = list[str](), list[float]()

    def watch(done: Round) -> None:
        residual, change = strategy.publisher.memory["residual"], strategy.publisher.replica.vector
        densities.append(strategy.compressors[1])
        left.append(float(np.linalg.norm(residual) / np.linalg.norm(change)))

    strategy = CompressedStrategy(few(), on_round=watch)
    strategy.start(RecordingGrid(learning(), nodes=40), FLAT, num_rounds=10)
    assert densities == ["topk(density=0.25, values='natural')"] * 9 + ["topk(density=1.0, values='natural')"]
    assert 1.5 * left[-1] < min(left[:-1]), "but what natural values round off"
    assert strategy.ledger.total().jump_bytes > 0


def test_where_all_nodes_evaluate_versions_are_no_sums_from_the_first_round_on() -> None:
    strategy, _ = run(10, few(evaluate=1.0), grid=RecordingGrid(nodes=40), stop=1)
    assert names([strategy.compressors[1]]) == ["eden"]


def test_where_few_nodes_train_and_all_evaluate_versions_of_another_step_take_stc() -> None:
    strategy = CompressedStrategy(FedAvgM(fraction_train=0.1, fraction_evaluate=1.0))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(nodes=40), FLAT, num_rounds=500, evaluate_fn=stop_after(2))
    assert names([strategy.compressors[1]]) == ["stc"]


def test_nodes_that_evaluate_leave_the_method_to_those_that_train() -> None:
    shorter, _ = run(40, FedAvg(fraction_train=0.5, fraction_evaluate=1.0), stop=2)
    assert shorter.compressors[1].startswith("stc("), "as if no node evaluated"
    strategy, grid = run(6, FedAvg(fraction_train=0.5, fraction_evaluate=1.0))
    assert not strategy.compressors[1].startswith("stc(")
    with pytest.raises(Stopped):
        strategy.start(grid, strategy.arrays, num_rounds=150, evaluate_fn=stop_after(8))
    assert strategy.compressors[1].startswith("stc(")


def test_a_link_with_a_compressor_of_its_own_keeps_it() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.topk(density=0.5))
    grid = RecordingGrid()
    strategy.start(grid, model((60, 60)), num_rounds=3)
    assert grid.per_round == ["topk(density=0.5)"] * 3


@pytest.mark.parametrize("inner", [FedAdam, FedAMS, FedMedian])
def test_updates_whose_errors_do_not_average_out_are_sent_with_more_bits(inner: type[FedAvg]) -> None:
    """As long as no noise is measured, which it is not for these strategies."""
    (first,) = run(30, stop=1)[1].per_round
    texts = run(30, inner(fraction_evaluate=0.0), stop=3)[1].per_round
    assert bits_of(texts[0]) > 1.5 * bits_of(first)
    assert len(set(texts)) == 1


@pytest.mark.parametrize("inner", [FedAvg, FedAvgM, FedAdam, FedMedian, Krum])
def test_no_strategy_gets_sparse_updates(inner: type[FedAvg]) -> None:
    """The median of sparse updates is 0, and momentum on the server goes on with updates that come late, and diverges."""
    _, grid = run(1_000, inner(fraction_evaluate=0.0), stop=1)
    assert "stc" not in names(grid.per_round)


def test_a_loop_without_start_is_told_that_no_version_is_the_last(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    guesses = list[bool]()

    def choose(facts: RoundFacts, *, keep_residual: bool) -> Choice:
        guesses.append(facts.is_guess)
        return choose_uplink(facts, keep_residual=keep_residual)

    monkeypatch.setattr("fedcomp.flower.server.links.choice.choose_uplink", choose)
    strategies = [
        CompressedStrategy(half()),
        CompressedStrategy(half(), uplink=fedcomp.dense(), downlink=fedcomp.dense()),
    ]
    for strategy in strategies:
        grid, arrays = RecordingGrid(), model()
        for number in (1, 2):
            messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
            aggregated, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
            assert aggregated is not None
            arrays = aggregated
    assert flower_log.text.count("the number of rounds is unknown, because start() was not called") == 1
    assert choice_of(strategies[0], tmp_path)["demand"]["quarter"] == 0
    flower_log.clear()
    run(2)
    assert "unknown" not in flower_log.text
    assert guesses == [True, True, False, False]


def test_a_tiny_model_travels_dense() -> None:
    _, grid = run(4, side=4)
    assert grid.per_round == ["dense()"] * 4


@pytest.mark.parametrize(("features", "exact"), [(249, True), (250, False)])
def test_a_small_regression_on_features_that_are_not_scaled_learns_as_in_plain_flower(
    features: int, exact: bool
) -> None:
    """An error that spreads evenly would cover the small entries."""
    goal = np.logspace(-3, 3, features + 1).astype(np.float32)

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        return arrays | {"w": arrays["w"] + np.float32(0.5) * (goal - arrays["w"])}

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(RecordingGrid(training(step)), to_record({"w": np.zeros(features + 1, np.float32)}), num_rounds=20)
    assert np.allclose(strategy.arrays["w"].numpy(), goal, rtol=1e-4) == exact


def test_entries_that_never_change_make_no_model_larger(tmp_path: Path) -> None:
    """A head of 1,100 entries gets the bits that it gets alone, from the second round on, and after a restart."""

    def head_alone(arrays: Arrays, context: Context, number: int) -> Arrays:
        rng = np.random.default_rng([number, int(context.node_config["partition-id"])])
        return arrays | {"head": arrays["head"] + rng.standard_normal(1100, np.float32)}

    texts: list[list[str]] = []
    for frozen in (0, 1_000_000):
        arrays = {"base": np.ones(frozen, np.float32), "head": np.zeros(1100, np.float32)}
        first = to_record({name: array for name, array in arrays.items() if array.size})
        grid = RecordingGrid(training(head_alone))
        path = tmp_path / str(frozen)
        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), checkpoint=Checkpoint(path))
        strategy.start(grid, first, num_rounds=20)
        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
        strategy.load(path)
        strategy.start(grid, first, num_rounds=1)
        texts.append(grid.per_round)
    alone, with_base = texts
    assert bits_of(with_base[0]) < bits_of(alone[0]), "nothing is known yet"
    ratios = [bits_of(one) / bits_of(other) for one, other in zip(with_base[1:], alone[1:], strict=True)]
    assert ratios == pytest.approx([1.0] * 20, rel=0.1), "as exact as a distance between two sketches"


def choice_in(path: Path) -> dict[str, Any]:
    """Return what the checkpoint at `path` remembers of the choice."""
    choice: dict[str, Any] = from_json(read_archive(path)["plain"])["choice"]
    return choice


def choice_of(strategy: CompressedStrategy, folder: Path) -> dict[str, Any]:
    """Return what a checkpoint of `strategy`, which is written to `folder`, remembers of the choice."""
    strategy.save(folder / "state")
    return choice_in(folder / "state")


@pytest.fixture
def never_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the residual: nodes that go one way, whatever they are sent, ask for the same in each round."""
    monkeypatch.setattr("fedcomp.flower.server.links.repetition.TOO_OFTEN", float("inf"))
    monkeypatch.setattr("fedcomp.flower.server.links.demand.SMALL", float("inf"))


def heavy_tailed(*seed: int, n: int = 3_660) -> NDArray[np.float32]:
    """Return numbers with a mean square of 1, a few of them large, as in the updates that SGD makes."""
    return np.random.default_rng(seed).standard_normal(n, np.float32) ** 3 / np.float32(15**0.5)


def learning(spread: Callable[[int], Any] = lambda _: 1.0, n: int = 3_660) -> ClientApp:
    """Return an app whose nodes go in one direction together, and each a bit elsewhere, by numbers times ``spread(node)``."""
    direction = heavy_tailed(0, n=n)

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        node = int(context.node_config["partition-id"])
        change = np.random.default_rng([number, node]).standard_normal(n, np.float32) * spread(node)
        return arrays | {"w": arrays["w"] + direction + change}

    return training(step)


def train(client_app: ClientApp, rounds: int, folder: Path) -> tuple[list[float], dict[str, Any]]:
    """Return the bits of the updates in each round, and what a checkpoint in `folder` then remembers of the choice."""
    grid = RecordingGrid(client_app)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(grid, FLAT, num_rounds=rounds)
    return [bits_of(text) for text in grid.per_round], choice_of(strategy, folder)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], dict[str, Any]]:
    """The bits and the choice of thirty rounds of nodes that learn."""
    return train(learning(), 30, tmp_path_factory.mktemp("learned"))


def test_the_farther_the_model_has_moved_the_fewer_the_bits(learned: tuple[list[float], dict[str, Any]]) -> None:
    """Nodes that walk at random get no farther than the noise of sampling, and send more."""
    bits, budget = learned[0], learned[1]["budget"]
    assert bits[-1] < 0.3 * bits[0]
    assert all(later <= 1.05 * earlier for earlier, later in pairwise(bits[1:]))
    assert budget["displacement"] == pytest.approx(30**2 * 3_660, rel=0.15)
    assert 0 < budget["noise"] < budget["displacement"]
    assert budget["rounds"] == 30
    walked = [bits_of(text) for text in run(10)[1].per_round]
    assert walked[-1] > 3 * bits[-1]


@pytest.mark.usefixtures("never_too_often")
def test_little_of_the_change_is_not_published_at_the_end(tmp_path: Path) -> None:
    """In the beginning versions are dense; as the model moves on, they become sparse."""
    rounds, densities = 60, list[float]()
    strategy = CompressedStrategy(
        half(),
        on_round=lambda _: densities.append(density_of(strategy.compressors[1])),
    )
    strategy.start(RecordingGrid(learning()), FLAT, num_rounds=rounds)
    budget = choice_of(strategy, tmp_path)["budget"]
    assert budget["displacement"] == pytest.approx(rounds**2 * 3_660, rel=0.15), "what is not published counts"
    exact = rounds * heavy_tailed(0)
    missing = np.sum((strategy.arrays["w"].numpy() - exact) ** 2) / np.sum(exact**2)
    share = RoundFacts(3_660, 1, rounds, NODES, NODES // 2, NODES // 2).may_be_unpublished
    assert budget["unpublished"] < 1.15 * share
    assert missing < 1.3 * share + budget["noise"] / budget["displacement"] + 1 / rounds
    assert max(densities[:5]) > 3 * densities[-1]


@pytest.mark.usefixtures("never_too_often")
@pytest.mark.parametrize("mode", [None, AsyncMode(buffer=2, staleness=50)])
def test_where_all_nodes_train_little_is_late_with_and_without_rounds(mode: AsyncMode | None, tmp_path: Path) -> None:
    """A version that waits for two of six updates is missed by no node: all of them train when it comes."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), mode=mode)
    strategy.start(LocalGrid(learning(), NODES, speeds=Speeds(spread=0.2)), FLAT, num_rounds=150)
    assert 0.5 * UNPUBLISHED_OF_ALL < choice_of(strategy, tmp_path)["budget"]["unpublished"] < 2 * UNPUBLISHED_OF_ALL


def descending(n: int = 3_660) -> tuple[ClientApp, Callable[[NDArray[np.float32]], float]]:
    """Return an app whose nodes take a step down a loss that is steep in some entries and flat in others, and this loss."""
    steep = np.geomspace(0.01, 1, n).astype(np.float32)
    goal = np.random.default_rng(0).standard_normal(n, np.float32)

    def descend(arrays: Arrays, context: Context, number: int) -> Arrays:
        seed = [number, int(context.node_config["partition-id"])]
        noise = np.random.default_rng(seed).standard_normal(n, np.float32)
        return arrays | {"w": arrays["w"] - 0.1 * steep * (arrays["w"] - goal + noise)}

    return training(descend), lambda vector: float(np.mean(steep * (vector - goal) ** 2))


@pytest.mark.usefixtures("never_too_often")
def test_where_the_nodes_ask_for_what_is_unpublished_versions_become_denser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second eighth or the second quarter of the rounds tells it, and from there on they become ever denser."""
    monkeypatch.setattr("fedcomp.methods.automatic.VERY_LATE", 9.0)
    client_app, loss = descending()

    def run(soon: float, late: float) -> tuple[float, list[float]]:
        monkeypatch.setattr("fedcomp.methods.automatic.LATE_SOON", soon)
        monkeypatch.setattr("fedcomp.methods.automatic.LATE", late)
        random.seed(3)
        densities = list[float]()
        strategy = CompressedStrategy(half(), on_round=lambda _: densities.append(density_of(strategy.compressors[1])))
        strategy.start(RecordingGrid(client_app, 12), FLAT, num_rounds=120)
        state = choice_of(strategy, tmp_path)
        assert [state[name]["rounds"] for name in ("lateness_soon", "lateness")] == [15, 30]
        assert all(
            state[name]["unpublished"] > 0.3 * state[name]["whole"] > 0 for name in ("lateness_soon", "lateness")
        )
        return loss(strategy.arrays["w"].numpy()), densities

    most, first = run(9.0, 9.0)
    for begin, limits in ((30, (0.3, 9.0)), (60, (9.0, 0.3))):
        found, densities = run(*limits)
        assert densities[:begin] == first[:begin]
        assert all(denser > before for denser, before in zip(densities[begin + 5 :], first[begin + 5 :], strict=True))
        assert densities[90] > 2 * first[90]
        assert found < 0.8 * most


def approaching(goal: NDArray[np.float32], rate: float = 0.2) -> ClientApp:
    """Return an app whose nodes go a part of the way to `goal`, as a regression on features of one scale does."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        noise = np.random.default_rng([number, int(context.node_config["partition-id"])]).standard_normal(goal.size)
        return arrays | {"w": arrays["w"] + np.float32(rate) * (goal - arrays["w"] + noise.astype(np.float32))}

    return training(step)


def test_what_the_nodes_ask_for_again_and_again_does_not_add_up(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture
) -> None:
    """With a residual, the server added up what they asked for in each round until it was far too much."""
    goal, densities = heavy_tailed(1), list[str]()
    strategy = CompressedStrategy(half(), on_round=lambda _: densities.append(strategy.compressors[1]))
    strategy.start(RecordingGrid(approaching(goal, 0.1)), FLAT, num_rounds=150)
    missing = strategy.arrays["w"].numpy() - goal
    assert float(missing @ missing) < 0.1 * float(goal @ goal)
    kinds = [name == "stc" for name in names(densities)]
    assert kinds[0]
    assert not all(kinds)
    assert choice_of(strategy, tmp_path)["repetition"]["pause"] > 0
    assert choice_of(strategy, tmp_path)["lateness"]["rounds"] < 150 // 4, (
        "a pause leaves the grid from which it counts"
    )
    assert "because the nodes have asked again and again" in flower_log.text


def fitting(goal: NDArray[np.float32]) -> tuple[ClientApp, NDArray[np.float32]]:
    """Return an app whose nodes return the optimum of their own data, as scikit-learn does, and the mean of 12 of these."""

    def own(node: int) -> NDArray[np.float32]:
        return goal + heavy_tailed(2, node)

    def fit(arrays: Arrays, context: Context, number: int) -> Arrays:
        return arrays | {"w": own(int(context.node_config["partition-id"]))}

    return training(fit), np.mean([own(node) for node in range(12)], axis=0)


@pytest.mark.parametrize("uplink", ["auto()", "dense()", "topk(density=0.3)"])
@pytest.mark.parametrize("rounds", [30, 60])
def test_nodes_that_fit_to_the_end_get_versions_that_leave_nothing_out(
    rounds: int, uplink: str, tmp_path: Path
) -> None:
    """Half of the accuracy was lost in a residual.  Where the noise of updates is unknown, errors must not grow either."""
    client_app, optimum = fitting(heavy_tailed(1))
    chosen = list[str]()
    strategy = CompressedStrategy(
        half(), uplink=fedcomp.parse(uplink), on_round=lambda _: chosen.append(strategy.compressors[1])
    )
    strategy.start(RecordingGrid(client_app, 12), FLAT, num_rounds=rounds)
    assert choice_of(strategy, tmp_path)["demand"]["is_high"]
    kinds = [name == "stc" for name in names(chosen)]
    assert kinds[0]
    assert not any(kinds[rounds // 2 + 1 :])
    missing = strategy.arrays["w"].numpy() - optimum
    assert float(missing @ missing) < 0.2 * float(optimum @ optimum)


def with_duals(goal: NDArray[np.float32]) -> ClientApp:
    """Return an app of consensus ADMM, with the penalty 0.3: a node replies with its weights plus its dual variables."""
    kept: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        node = int(context.node_config["partition-id"])
        weights, duals = kept.get(node, (arrays["w"], np.zeros_like(goal)))
        for _ in range(20):
            gradient = weights - goal - heavy_tailed(2, node)
            weights = weights - np.float32(0.05) * (gradient + np.float32(0.3) * (weights - arrays["w"] + duals))
        duals = duals + weights - arrays["w"]
        kept[node] = weights, duals
        return arrays | {"w": weights + duals}

    return training(step)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_the_default_stops_errors_that_dual_variables_make_grow(fraction: float, tmp_path: Path) -> None:
    """Before, squared errors had grown by a factor of three million by the end of the first quarter."""
    goal, missing = heavy_tailed(1), list[float]()

    def measure(number: int, arrays: ArrayRecord) -> None:
        missing.append(float(np.square(arrays["w"].numpy() - goal).sum()))
        stop_after(40)(number, arrays)

    random.seed(1)
    strategy = CompressedStrategy(FedAvg(fraction_train=fraction, fraction_evaluate=0.0))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(with_duals(goal), 12), FLAT, num_rounds=120, evaluate_fn=measure)
    assert choice_of(strategy, tmp_path)["growth"]["is_found"]
    assert max(missing) < 3e4 * missing[0]
    assert max(missing[30:]) < 0.1 * max(missing), "they come down again"


def test_the_log_warns_of_a_named_downlink_with_which_errors_grow(flower_log: pytest.LogCaptureFixture) -> None:
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.stc(density=0.04)
    )
    strategy.start(RecordingGrid(with_duals(heavy_tailed(1)), 12), FLAT, num_rounds=40)
    assert flower_log.text.count("ask again and again for what the downlink, stc(density=0.04), leaves out") == 1


def test_the_log_warns_of_each_named_downlink(flower_log: pytest.LogCaptureFixture) -> None:
    """What the nodes asked for while another one was used does not count."""

    def switch(number: int, _: object) -> None:
        if number == 60:
            strategy.downlink = fedcomp.stc(density=0.002)

    strategy = CompressedStrategy(half(), uplink=fedcomp.dense(), downlink=fedcomp.stc(density=0.003))
    strategy.start(RecordingGrid(approaching(heavy_tailed(1)), 12), FLAT, num_rounds=120, evaluate_fn=switch)
    for density in (0.003, 0.002):
        assert flower_log.text.count(f"for what the downlink, stc(density={density}), leaves out") == 1


def test_a_restarted_server_knows_what_the_nodes_have_asked_for(tmp_path: Path) -> None:
    client_app, _ = fitting(heavy_tailed(1))
    path, grid, chosen = tmp_path / "state", RecordingGrid(client_app, 12), list[str]()
    first = CompressedStrategy(half(), checkpoint=Checkpoint(path))
    with pytest.raises(Stopped):
        first.start(grid, FLAT, num_rounds=60, evaluate_fn=stop_after(45))
    second = CompressedStrategy(half(), on_round=lambda _: chosen.append(second.compressors[1]))
    second.load(path)
    assert choice_of(second, tmp_path)["demand"]["is_high"]
    second.start(grid, second.arrays, num_rounds=60 - second.round)
    assert len(chosen) > 10
    assert "stc" not in names(chosen)


def going_one_way(folder: Path) -> dict[str, Any]:
    """Return what a run measures whose nodes go one way in all rounds; its versions end as STC."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(RecordingGrid(learning()), FLAT, num_rounds=150)
    assert names([strategy.compressors[1]]) == ["stc"]
    return choice_of(strategy, folder)


@pytest.mark.usefixtures("never_too_often")
def test_nodes_that_go_one_way_ask_for_little_that_is_unpublished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcomp.flower.server.links.demand.SMALL", 0.12)
    assert not going_one_way(tmp_path)["demand"]["is_high"]


def test_where_a_pause_shows_that_errors_stay_there_is_no_further_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LSTM came to pause after pause on its first plateau, and they cost gigabytes."""
    monkeypatch.setattr("fedcomp.flower.server.links.repetition.TOO_OFTEN", 0.3)
    state = going_one_way(tmp_path)
    assert state["correction"]["rounds"] >= 10
    assert state["repetition"]["pause"] == FIRST_PAUSE


def test_a_model_counts_as_late_if_a_pause_hides_how_late_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause leaves the grid of steps.  With a named uplink and the default downlink, models then stayed late to the end."""
    monkeypatch.setattr("fedcomp.flower.server.links.repetition.TOO_OFTEN", 0.3)
    monkeypatch.setattr("fedcomp.flower.server.links.demand.SMALL", 9.0)
    densities = list[float]()
    for late in (0.0, LATE_AFTER_PAUSE):
        monkeypatch.setattr("fedcomp.flower.server.links.measurements.LATE_AFTER_PAUSE", late)
        strategy = CompressedStrategy(half())
        strategy.start(RecordingGrid(learning(), 12), FLAT, num_rounds=150)
        state = choice_of(strategy, tmp_path)
        assert (state["lateness"]["rounds"], state["repetition"]["pause"]) == (0, FIRST_PAUSE)
        densities.append(density_of(strategy.compressors[1]))
    assert densities[1] > 2 * densities[0]


def test_the_error_of_a_version_from_before_named_compressors_does_not_count(tmp_path: Path) -> None:
    def switch(number: int, _: object) -> None:
        if number == 3:
            assert choice_of(strategy, tmp_path)["correction"]["error"]
            strategy.uplink = strategy.downlink = fedcomp.dense()

    strategy = CompressedStrategy(half())
    strategy.start(RecordingGrid(), model((60, 60)), num_rounds=5, evaluate_fn=switch)
    assert choice_of(strategy, tmp_path)["correction"]["error"] == []


def test_where_the_nodes_undo_errors_a_run_ends_about_as_exactly_as_without_compression(tmp_path: Path) -> None:
    """Before, versions came to leave something out again, and the last updates and versions had as much noise as others."""
    goal, chosen = heavy_tailed(1), list[str]()

    def squared_error(strategy: CompressedStrategy) -> float:
        random.seed(3)
        strategy.start(RecordingGrid(approaching(goal)), FLAT, num_rounds=150)
        missing = strategy.arrays["w"].numpy() - goal
        return float(missing @ missing)

    plain = squared_error(CompressedStrategy(half(), uplink=fedcomp.dense(), downlink=fedcomp.dense()))
    strategy = CompressedStrategy(half(), on_round=lambda _: chosen.append(strategy.compressors[1]))
    assert squared_error(strategy) < 1.5 * plain
    correction = choice_of(strategy, tmp_path)["correction"]
    assert correction["undone"] / correction["errors"] == pytest.approx(0.2, abs=0.02)
    kinds = [name == "stc" for name in names(chosen)]
    assert not any(kinds[kinds.index(False) :]), "versions leave nothing out from the first pause on"


@pytest.mark.parametrize(
    ("downlink", "warnings"), [("stc(density=0.003)", 1), ("balanced(stc(density=0.003))", 1), ("stc(density=0.25)", 0)]
)
def test_the_log_warns_of_a_named_downlink_that_leaves_out_what_the_nodes_ask_for(
    downlink: str, warnings: int, flower_log: pytest.LogCaptureFixture
) -> None:
    strategy = CompressedStrategy(half(), uplink=fedcomp.dense(), downlink=fedcomp.parse(downlink))
    strategy.start(RecordingGrid(approaching(heavy_tailed(1)), 12), FLAT, num_rounds=60)
    assert (
        flower_log.text.count(f"ask again and again for what the downlink, {fedcomp.parse(downlink)}, leaves out")
        == warnings
    )


@pytest.mark.parametrize(
    ("is_flat", "rounds", "nodes"), [(True, 200, 6), (False, 200, 6), (True, 25, 24)], ids=["flat", "not flat", "short"]
)
def test_where_no_entries_stand_out_what_the_first_rounds_asked_for_is_not_judged(
    is_flat: bool, rounds: int, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Adam on the nodes: versions took four times as many bits from the second quarter on, for all of the run.

    In a short run of which few nodes train in a round, versions leave something out in each, and all is judged.
    """
    flags, begin = list[bool](), Demand.begin

    def begin_and_keep(demand: Demand, server_round: int, num_rounds: int, *, leaves_nothing_out: bool) -> None:
        flags.append(leaves_nothing_out)
        begin(demand, server_round, num_rounds, leaves_nothing_out=leaves_nothing_out)

    monkeypatch.setattr(Demand, "begin", begin_and_keep)
    goal = heavy_tailed(1) ** 3
    client_app = approaching(np.sign(goal) if is_flat else 30 * goal, 0.05)
    strategy = CompressedStrategy(FedAvg(fraction_train=3 / nodes, fraction_evaluate=0.0))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(client_app, nodes), FLAT, num_rounds=rounds, evaluate_fn=stop_after(16))
    assert (0 < choice_of(strategy, tmp_path)["largest"] < FLAT_SHARE) is is_flat
    assert flags == [False] * flags.count(False) + [True] * flags.count(True)
    assert flags[-1] is (is_flat and rounds >= 30)


def test_a_strategy_that_sums_from_the_first_model_itself_is_not_measured(tmp_path: Path) -> None:
    """Each of its changes holds what is unpublished, whatever the nodes ask for."""
    strategy = CompressedStrategy(QrdaAdagrad(fraction_train=0.1, fraction_evaluate=0.0, eta=0.1))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(approaching(heavy_tailed(1)), 40), FLAT, num_rounds=500, evaluate_fn=stop_after(7))
    assert names([strategy.compressors[1]]) == ["stc"]
    assert choice_of(strategy, tmp_path)["repetition"]["times"] == 0


def test_where_what_is_unpublished_is_noise_versions_stay_sparse(tmp_path: Path) -> None:
    """Nodes that walk at random never ask for it."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        change = heavy_tailed(number, int(context.node_config["partition-id"]))
        return arrays | {"w": arrays["w"] + change}

    densities = list[float]()
    strategy = CompressedStrategy(half(), on_round=lambda _: densities.append(density_of(strategy.compressors[1])))
    strategy.start(RecordingGrid(training(step), 12), FLAT, num_rounds=120)
    assert choice_of(strategy, tmp_path)["lateness"]["rounds"] == 30
    assert densities[60] < 1.3 * densities[58]


def adam(arrays: Arrays, context: Context, number: int) -> Arrays:
    """Move all entries by about as much, as Adam does."""
    rng = np.random.default_rng([number, int(context.node_config["partition-id"])])
    signs = np.sign(VECTOR + rng.standard_normal(3_660, np.float32))
    return arrays | {"w": arrays["w"] + np.float32(0.01) * signs}


@pytest.mark.parametrize("nodes", [6, 40])
def test_where_no_entries_stand_out_versions_leave_nothing_out(nodes: int, tmp_path: Path) -> None:
    """STC would send few of many entries that matter alike.  What its first versions have left out is sent by the next one."""
    chosen = list[str]()
    strategy = CompressedStrategy(
        FedAvg(fraction_train=3 / nodes, fraction_evaluate=0.0),
        on_round=lambda _: chosen.append(strategy.compressors[1]),
    )
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(adam), nodes), FLAT, num_rounds=150, evaluate_fn=stop_after(20))
    assert [name == "stc" for name in names(chosen)] == [True] * 5 + [False] * 14
    choice, moved = choice_of(strategy, tmp_path), strategy.publisher.replica.vector
    assert 0.01 < choice["largest"] < 0.1
    assert choice["largest_rounds"] == 5
    assert choice["budget"]["unpublished"] < 1e-9
    assert float(moved @ VECTOR / np.linalg.norm(moved) / np.linalg.norm(VECTOR)) > 0.7, "the signs of the direction"


def test_the_version_that_brings_the_residual_has_bits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual of five rounds is longer than the change of one."""
    errors, publish = list[float](), Publisher.publish

    def watched(publisher: Publisher, change: NDArray[np.float32], *args: Any, **kwargs: Any) -> None:
        exact, before = change + publisher.memory.get("residual", 0), publisher.replica.vector.copy()
        publish(publisher, change, *args, **kwargs)
        errors.append(float(np.sum((publisher.replica.vector - before - exact) ** 2) / np.sum(exact**2)))

    monkeypatch.setattr(Publisher, "publish", watched)
    strategy = CompressedStrategy(half())
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(adam)), FLAT, num_rounds=1000, evaluate_fn=stop_after(8))
    assert errors[4] > 0.8
    assert errors[5] < 0.5


def test_the_first_version_of_a_pause_has_bits_for_the_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, facts_of = dict[int, float](), LinkCompressors._facts  # noqa: SLF001

    def watched(links: LinkCompressors, publisher: Publisher, *numbers: int) -> RoundFacts:
        facts = facts_of(links, publisher, *numbers)
        steps[facts.server_round] = facts.step if facts.repeats else 0.0
        return facts

    monkeypatch.setattr(LinkCompressors, "_facts", watched)
    strategy = CompressedStrategy(half())
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(approaching(heavy_tailed(1))), FLAT, num_rounds=1000, evaluate_fn=stop_after(40))
    begins = min(number for number, step in steps.items() if step)
    assert steps[begins] > 3 * steps[begins + 1]


@pytest.mark.usefixtures("never_too_often")
def test_late_rounds_do_not_tell_whether_entries_stand_out(tmp_path: Path) -> None:
    """Noise hides it there, as in a run that goes on from a checkpoint of an earlier version."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        return adam(arrays, context, number) if number > 10 else arrays

    strategy = CompressedStrategy(half())
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(step)), FLAT, num_rounds=150, evaluate_fn=stop_after(20))
    assert choice_of(strategy, tmp_path)["largest_rounds"] == 0
    assert names([strategy.compressors[1]]) == ["stc"]


def test_updates_that_are_clipped_tell_whether_entries_stand_out(tmp_path: Path) -> None:
    """Their noise is scaled down with them."""
    strategy = CompressedStrategy(half(), clipping=Clipping(median=0.3))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(adam)), FLAT, num_rounds=150, evaluate_fn=stop_after(8))
    assert choice_of(strategy, tmp_path)["largest_rounds"] == 5


def test_sparse_updates_do_not_tell_whether_entries_stand_out(tmp_path: Path) -> None:
    strategy = CompressedStrategy(half(), uplink=fedcomp.stc(density=0.3))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(adam)), FLAT, num_rounds=150, evaluate_fn=stop_after(3))
    assert choice_of(strategy, tmp_path)["largest"] == 0
    assert names([strategy.compressors[1]]) == ["stc"]


@pytest.mark.parametrize(("norm", "most"), [(0.7, 1.25), (1.0, 1.2), (3.0, 9.0)])
def test_compression_lengthens_no_update_far_beyond_the_bound_of_clipping(
    norm: float, most: float, tmp_path: Path
) -> None:
    """Unbiased codes lengthen an update by their error; what is cut off is lost."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        change = heavy_tailed(number, int(context.node_config["partition-id"]))
        return arrays | {"w": arrays["w"] + change / np.linalg.norm(change)}

    free, bound = (CompressedStrategy(half(), clipping=clipping) for clipping in (None, Clipping(norm=norm)))
    lengths = dict[bool, float]()
    for strategy in (free, bound):
        grid = RecordingGrid(training(step))
        with pytest.raises(Stopped):
            strategy.start(grid, FLAT, num_rounds=150, evaluate_fn=stop_after(12))
        text = fedcomp.parse(grid.per_round[-1])
        vector = step({"w": np.zeros(3_660, np.float32)}, Context(0, 0, {"partition-id": 0}, RecordDict(), {}), 1)["w"]
        body, _ = text.encode(vector, text.init(3_660), 7)
        lengths[strategy is bound] = float(np.sum(text.decode(body) ** 2))
    assert lengths[False] > 2
    assert lengths[True] < most
    if norm == 3:
        assert lengths[True] == pytest.approx(lengths[False], rel=0.3), "there is room"


def test_one_node_of_six_does_not_decide_how_much_room_the_bound_leaves(tmp_path: Path) -> None:
    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        node = int(context.node_config["partition-id"])
        change = heavy_tailed(number, node)
        return arrays | {"w": arrays["w"] + change / np.linalg.norm(change) * np.float32(9.5 if node == 2 else 1)}

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), clipping=Clipping(norm=10))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(training(step)), FLAT, num_rounds=150, evaluate_fn=stop_after(3))
    assert choice_of(strategy, tmp_path)["longest"] == pytest.approx(1, rel=0.3)


@pytest.mark.usefixtures("never_too_often")
def test_tensors_that_move_little_are_published_too(tmp_path: Path) -> None:
    """As the matrices of low-rank adapters beside a head: STC has one threshold for all, and takes the head alone for long."""
    shapes = {"head": (45, 40), "adapter": (40, 45)}
    ways = {
        name: np.random.default_rng([5, len(name)]).standard_normal(shape, np.float32) for name, shape in shapes.items()
    }

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        rng = np.random.default_rng([number, int(context.node_config["partition-id"])])
        noise = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        pace = {"head": 1.0, "adapter": 0.03}
        return {name: arrays[name] + pace[name] * (ways[name] + noise[name]) for name in shapes}

    rounds, start = 100, to_record({name: np.full(shape, 9, np.float32) for name, shape in shapes.items()})
    strategy = CompressedStrategy(half())
    strategy.start(RecordingGrid(training(step)), start, num_rounds=rounds)
    left = {
        "head": strategy.publisher.memory["residual"][:1800],
        "adapter": strategy.publisher.memory["residual"][1800:],
    }
    ratios = {name: np.sum(left[name] ** 2) / np.sum((strategy.arrays[name].numpy() - 9) ** 2) for name in shapes}
    most = RoundFacts(3_600, 1, rounds, NODES, NODES // 2, NODES // 2).may_be_unpublished
    assert choice_of(strategy, tmp_path)["budget"]["unpublished"] == pytest.approx(
        np.mean(list(ratios.values())), rel=0.2
    )
    assert ratios["adapter"] < 2.3 * most, (
        "half of the entries, so at most twice the bound where versions are in balance"
    )


@pytest.mark.usefixtures("never_too_often")
@pytest.mark.parametrize("inner", [FedAvgM, FedAdam, FedMedian])
def test_where_few_nodes_get_each_version_those_of_any_strategy_follow_what_is_not_published_yet(
    inner: type[FedAvg], tmp_path: Path
) -> None:
    strategy = CompressedStrategy(inner(fraction_train=0.125, fraction_evaluate=0.0))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(learning(), nodes=40), FLAT, num_rounds=500, evaluate_fn=stop_after(12))
    choice = choice_of(strategy, tmp_path)
    budget, norm = choice["budget"], float(np.sum(strategy.publisher.memory["residual"].astype(np.float64) ** 2))
    published = (strategy.publisher.replica.vector - FLAT["w"].numpy()).astype(np.float64)
    assert budget["unpublished"] == pytest.approx(norm / np.sum(published**2), rel=0.1)
    assert budget["noise"] == 0, "what the errors of updates do to the model is not known"
    assert budget["rounds"] == 12


@pytest.mark.parametrize("inner", [FedAvgM, FedAdam, FedMedian])
def test_the_noise_in_another_step_than_the_mean_is_that_of_the_versions(inner: type[FedAvg], tmp_path: Path) -> None:
    """What the step makes of the errors of updates is not known."""
    errors, wanted = list[float](), list[NDArray[np.float32]]()

    def watch(number: int, arrays: ArrayRecord) -> None:
        errors.extend(float(np.sum((arrays["w"].numpy() - each) ** 2)) for each in wanted[len(errors) :])
        if number == 5:
            raise Stopped

    class Watched(inner):  # type: ignore[valid-type, misc]
        """Keeps what each version should be."""

        def aggregate_train(self, *args: Any) -> Any:
            aggregated, metrics = super().aggregate_train(*args)
            wanted.append(aggregated["w"].numpy())
            return aggregated, metrics

    strategy = CompressedStrategy(Watched(fraction_evaluate=0.0))
    with pytest.raises(Stopped):
        strategy.start(RecordingGrid(learning()), FLAT, num_rounds=150, evaluate_fn=watch)
    budget = choice_of(strategy, tmp_path)["budget"]
    assert len(errors) == 5
    assert budget["noise"] == pytest.approx(sum(errors), rel=0.1)


@pytest.mark.parametrize("nodes", [6, 12])
def test_momentum_on_the_server_does_not_overshoot(nodes: int) -> None:
    """A server with momentum overshoots where the model that nodes train is late."""
    client_app, loss = descending()
    losses = list[float]()
    for compressor in (fedcomp.dense(), fedcomp.auto()):
        random.seed(3)
        inner = FedAvgM(fraction_train=6 / nodes, fraction_evaluate=0.0, server_momentum=0.9)
        strategy = CompressedStrategy(inner, uplink=compressor, downlink=compressor)
        strategy.start(RecordingGrid(client_app, nodes), FLAT, num_rounds=150)
        losses.append(loss(strategy.arrays["w"].numpy()))
    assert losses[1] - losses[0] < 0.1 * loss(FLAT["w"].numpy())
    assert strategy.ledger.ratio > 15


def test_the_noise_of_updates_with_uneven_weights_is_larger(tmp_path: Path) -> None:
    """(1 + 1 + 2 + 2 + 3 + 3)^2 / 28 is 86 % of 6 even ones."""
    run(2, checkpoint=tmp_path / "state")
    assert choice_in(tmp_path / "state")["evenness"] == pytest.approx(144 / 28 / 6)


@pytest.mark.parametrize("compressor", ["eden(bits=1)", "crosspolytope(bits=0.5)"])
def test_the_noise_is_the_error_of_the_mean_and_of_the_versions(compressor: str, tmp_path: Path) -> None:
    """One link is chosen, and the other one named: what is measured of both is what they add."""
    noise: list[float] = []
    n, rounds = 3_660, 4
    for uplink, downlink in ((compressor, "auto()"), ("auto()", compressor)):
        strategy = CompressedStrategy(
            FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.parse(downlink)
        )
        exact = np.zeros(n)

        def measure(number: int, arrays: ArrayRecord, exact: NDArray[np.float64] = exact) -> None:
            if number == rounds:
                noise.append(float(np.sum((arrays["w"].numpy() - exact) ** 2)))

        direction = heavy_tailed(0, n=n).astype(np.float64)
        for number in range(1, rounds + 1):
            changes = [np.random.default_rng([number, node]).standard_normal(n, np.float32) for node in range(NODES)]
            exact += direction + np.mean(changes, 0)
        strategy.start(
            RecordingGrid(learning()), to_record({"w": np.zeros(n, np.float32)}), num_rounds=rounds, evaluate_fn=measure
        )
        assert choice_of(strategy, tmp_path)["budget"]["noise"] == pytest.approx(noise[-1], rel=0.1)


def lopsided(large: Callable[[int, int], bool], n: int = 3_660) -> ClientApp:
    """Return an app whose nodes walk at random, in small steps unless ``large(node, number)``."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        node = int(context.node_config["partition-id"])
        change = np.random.default_rng([number, node]).standard_normal(n, np.float32)
        return arrays | {"w": arrays["w"] + change * (1 if large(node, number) else 0.03)}

    return training(step)


def test_the_noise_is_the_error_of_the_mean_where_most_updates_are_small(tmp_path: Path) -> None:
    """With one sample in a step, most updates can be next to nothing."""
    n, nodes, rounds, begins = 3_660, 20, 40, 20

    def large(node: int, number: int) -> bool:
        return bool(np.random.default_rng([number, node, 1]).random() < 0.25)

    exact, errors, noise = np.zeros(n), list[NDArray[np.float64]](), list[float]()
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), downlink=fedcomp.dense())

    def measure(number: int, arrays: ArrayRecord) -> None:
        for node in range(nodes) if number else ():
            change = np.random.default_rng([number, node]).standard_normal(n, np.float32)
            exact[:] += change * (1 if large(node, number) else 0.03) / nodes
        if number in (begins, rounds):
            errors.append(arrays["w"].numpy() - exact)
            noise.append(choice_of(strategy, tmp_path)["budget"]["noise"])

    strategy.start(RecordingGrid(lopsided(large), nodes), FLAT, num_rounds=rounds, evaluate_fn=measure)
    added = float(np.sum((errors[1] - errors[0]) ** 2))
    assert 0.5 * added < noise[1] - noise[0] < 1.1 * added, "with the median, a two-hundredth of it"
    assert choice_of(strategy, tmp_path)["inequality"] > 4


def test_the_median_counts_again_where_updates_have_become_equal(tmp_path: Path) -> None:
    def large(node: int, number: int) -> bool:
        return number > 20 or bool(np.random.default_rng([number, node, 1]).random() < 0.25)

    strategy, inequality = CompressedStrategy(FedAvg(fraction_evaluate=0.0)), list[float]()

    def measure(number: int, _: ArrayRecord) -> None:
        if number in (20, 60):
            inequality.append(choice_of(strategy, tmp_path)["inequality"])

    strategy.start(RecordingGrid(lopsided(large), 20), FLAT, num_rounds=60, evaluate_fn=measure)
    assert inequality[0] > 4
    assert inequality[1] < 3


@pytest.mark.parametrize(
    ("numbers", "mean"),
    [
        ([3.0], 3.0),
        ([1.0, 9.0], 5.0),
        ([1.0, 1.0, 9.0, 9.0], 5.0),
        ([9.0, 0.0, 0.0, 9.0, 100.0], 27 / 5),
        ([0.0] * 16 + [1.0, 1.0, 50.0, 60.0], 4 / 20),
    ],
)
def test_the_largest_tenth_counts_as_the_next_one_and_of_few_the_median(numbers: list[float], mean: float) -> None:
    """The mean of two, the larger one as large as the other, would be the smaller one."""
    assert winsorized_mean(np.array(numbers)) == pytest.approx(mean)


def test_one_node_of_six_does_not_decide_how_unequal_updates_are(tmp_path: Path) -> None:
    inequality = train(lopsided(lambda node, _: node == 2), 10, tmp_path)[1]["inequality"]
    assert inequality == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("restarted", [False, True])
def test_versions_without_error_feedback_add_noise_after_others_left_a_residual(
    restarted: bool, tmp_path: Path
) -> None:
    """The first one publishes the residual too, and it is no part of their error."""
    noise = list[float]()
    for downlink in ("dense()", "eden(bits=1)"):
        strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), downlink=fedcomp.stc(density=0.1))
        with pytest.raises(Stopped):
            strategy.start(RecordingGrid(learning()), FLAT, num_rounds=20, evaluate_fn=stop_after(5))
        before, left = choice_of(strategy, tmp_path)["budget"], strategy.publisher.memory["residual"].copy()
        if restarted:
            strategy.save(tmp_path / "state")
            strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
            strategy.load(tmp_path / "state")
        strategy.downlink = fedcomp.parse(downlink)
        with pytest.raises(Stopped):
            strategy.start(RecordingGrid(learning()), FLAT, num_rounds=20, evaluate_fn=stop_after(10))
        after = choice_of(strategy, tmp_path)["budget"]
        assert left.any()
        assert np.abs(strategy.publisher.memory.get("residual", np.zeros(1))).max() < 1e-5, "what float32 rounds off"
        noise.append(after["noise"] - before["noise"])
    assert noise[0] < np.sum(left**2), "of the updates alone"
    error = 0.571 * 3_660 * (1 + 1 / NODES)  # of a change, by EDEN with one bit
    assert noise[1] - noise[0] > 4 * error, "of five versions"


def begin(path: Path, **settings: Any) -> CompressedStrategy:
    """Return a strategy that averages, and goes on from the checkpoint at `path` if there is one."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), checkpoint=Checkpoint(path), **settings)
    if path.exists():
        strategy.load(path)
    return strategy


@pytest.mark.parametrize("downlink", ["dense()", "auto()"])
def test_updates_alone_may_add_all_the_noise_where_versions_are_not_chosen(downlink: str, tmp_path: Path) -> None:
    path, grid = tmp_path / "state", RecordingGrid(learning())
    with pytest.raises(Stopped):
        begin(path, downlink=fedcomp.parse(downlink)).start(grid, FLAT, num_rounds=90, evaluate_fn=stop_after(5))
    choice = choice_in(path)
    budget = NoiseBudget(**choice["budget"])
    facts = RoundFacts(3_660, 6, 90, NODES, NODES, NODES, 3_660, choice["gain"])
    noise = budget.share(85, facts.noise_share, facts.sampling_share, facts.growth_power)
    facts = replace(facts, noise=noise, step=budget.step / budget.norm, both=downlink == "auto()")
    expected = choose_uplink(facts).compressor
    with pytest.raises(Stopped):
        begin(path, downlink=fedcomp.parse(downlink)).start(grid, FLAT, num_rounds=85, evaluate_fn=stop_after(6))
    assert grid.per_round[5] == str(expected)


def walking(arrays: Arrays, context: Context, number: int) -> Arrays:
    """Train to a model that is somewhere near."""
    return arrays | {"w": arrays["w"] + heavy_tailed(number, context.node_id)}


@pytest.mark.parametrize("learns", [False, True])
def test_updates_may_add_what_the_budget_gives_where_versions_keep_a_residual(learns: bool, tmp_path: Path) -> None:
    """As much as sampling, if nodes only walk; and no model is expected to learn in a straight line for 200 rounds."""
    random.seed(3)
    strategy = CompressedStrategy(half())
    grid, budgets = RecordingGrid(learning() if learns else training(walking)), list[NoiseBudget]()

    def measure(number: int, _: object) -> None:
        if number:
            budgets.append(NoiseBudget(**choice_of(strategy, tmp_path)["budget"]))
        stop_after(8)(number, _)

    with pytest.raises(Stopped):
        strategy.start(grid, FLAT, num_rounds=200, evaluate_fn=measure)
    known = RoundFacts(3_660, 8, 200, NODES, 3, 3.0, 3_660, both=False)
    budget = budgets[6]
    allowed = budget.share(193, known.noise_share, known.sampling_share, known.growth_power)
    assert allowed != budget.share(193, known.noise_share, *([0.0, 0.5] if not learns else [1.5]))
    facts = replace(known, noise=allowed, gain=choice_of(strategy, tmp_path)["gain"])
    found = bits_of(grid.per_round[7])
    assert found == pytest.approx(bits_of(str(choose_uplink(facts).compressor)), rel=0.1)


def test_a_strategy_that_goes_back_measures_from_the_model_that_it_goes_back_to(tmp_path: Path) -> None:
    one, then = CompressedStrategy(FedAvg(fraction_evaluate=0.0)), tmp_path / "then"
    one.start(RecordingGrid(learning()), FLAT, num_rounds=4)
    one.save(then)
    other = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    other.start(RecordingGrid(learning()), FLAT, num_rounds=8)
    other.load(then)
    budgets = []
    for strategy in (one, other):
        strategy.start(RecordingGrid(learning()), FLAT, num_rounds=2)
        budgets.append(choice_of(strategy, tmp_path)["budget"])
    assert budgets[0] == budgets[1]


def test_rounds_in_which_no_noise_is_known_do_not_count_as_noise_later(tmp_path: Path) -> None:
    """The error of a sparse update is not random, and no part of the noise."""
    stc, grid = fedcomp.stc(density=0.1), RecordingGrid(learning())
    strategy = CompressedStrategy(half(), uplink=stc, checkpoint=Checkpoint(tmp_path / "state"))
    with pytest.raises(Stopped):
        strategy.start(grid, FLAT, num_rounds=150, evaluate_fn=stop_after(3))
    assert choice_in(tmp_path / "state")["budget"]["noise"] == 0
    strategy.uplink = fedcomp.eden(bits=1)
    strategy.start(grid, FLAT, num_rounds=1)
    assert 0 < choice_in(tmp_path / "state")["budget"]["noise"] < 3_660, "less than one step of learning"


def test_a_shared_start_makes_first_messages_small_and_so_updates_too(tmp_path: Path) -> None:
    """Three messages a node: a third bring whole models otherwise."""
    texts = []
    for shared in (False, True):
        client_app = training(lambda arrays, *_: arrays, start=lambda _: FLAT)
        grid = RecordingGrid(client_app)
        begin(tmp_path / str(shared), shared_start=shared).start(grid, FLAT, num_rounds=3)
        texts.append(grid.per_round[0])
    assert bits_of(texts[0]) == pytest.approx(32 * 0.3 / 3)
    assert bits_of(texts[1]) < 2


def test_updates_whose_norm_is_in_few_places_take_fewer_bits(
    learned: tuple[list[float], dict[str, Any]], tmp_path: Path
) -> None:
    """The server computes the error of the updates from the updates, remembers it, and no few nodes decide."""
    large = np.where(np.arange(3_660) < 1024, np.float32(8), np.float32(1))
    choices = [learned[1]]
    for uneven in (2, NODES):
        spreads: list[Any] = [large] * uneven + [1.0] * (NODES - uneven)
        choices.append(train(learning(spreads.__getitem__), 30, tmp_path)[1])
    none, two, all_of_them = (choice["gain"] for choice in choices)
    norms = [choice["budget"]["norm"] for choice in choices]
    assert all_of_them > 1.4 * none
    assert two == pytest.approx(none, rel=0.05)
    assert norms[1] == pytest.approx(norms[0], rel=0.1) != norms[2]
    facts = RoundFacts(3_660, 30, 60, NODES, NODES, NODES, noise=0.5, both=False)
    few, many = (bits_of(str(choose_uplink(replace(facts, gain=gain)).compressor)) for gain in (all_of_them, none))
    assert few < 0.8 * many


def test_nothing_is_measured_where_the_user_named_the_compressor(tmp_path: Path) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.crosspolytope(bits=0.3))
    strategy.start(RecordingGrid(), model((60, 60)), num_rounds=3)
    strategy.save(tmp_path / "state")
    assert choice_in(tmp_path / "state")["gain"] == 1


def test_weights_whose_squares_are_no_numbers_are_even() -> None:
    """The squares of 1e-200 are 0."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    grid = RecordingGrid(training(lambda arrays, *_: arrays, weight=1e-200))
    with pytest.raises(Stopped):
        strategy.start(grid, model((60, 60)), num_rounds=100, evaluate_fn=stop_after(10))
    assert grid.per_round == ["crosspolytope(bits=0.592)"] * 10, "as with six even weights"
    assert strategy.failed_rounds == ()


def test_the_log_names_the_choice_and_its_reason_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        run(4)
    (line,) = [text for record in caplog.records if "auto() chooses" in (text := record.getMessage())]
    for part in ("round 1:", "eden(bits=", "as uplink, because", "as downlink, because"):
        assert part in line


@pytest.mark.parametrize(("share", "rounds"), [(1.0, 8), (0.5, 30), (0.5, 100)], ids=["unbiased", "stc", "late"])
def test_a_restarted_server_chooses_as_if_it_had_not_stopped(share: float, rounds: int, tmp_path: Path) -> None:
    def watched(downlinks: dict[int, str], checkpoint: Checkpoint | None = None) -> CompressedStrategy:
        def keep(over: Round) -> None:
            downlinks[over.number] = str(strategy.compressors[1])

        inner = FedAvg(fraction_train=share, fraction_evaluate=0.0)
        strategy = CompressedStrategy(inner, checkpoint=checkpoint, on_round=keep)
        return strategy

    stopped = rounds // 2 if rounds < 100 else 40
    random.seed(3)
    once, again, expected, grid = dict[int, str](), dict[int, str](), RecordingGrid(), RecordingGrid()
    whole, first = watched(once), watched(again, Checkpoint(tmp_path / "state"))
    whole.start(expected, model((60, 60)), num_rounds=rounds)
    random.seed(3)
    with pytest.raises(Stopped):
        first.start(grid, model((60, 60)), num_rounds=rounds, evaluate_fn=stop_after(stopped))
    second = watched(again)
    second.load(tmp_path / "state")
    second.start(grid, second.arrays, num_rounds=rounds - second.round)
    assert grid.per_round == expected.per_round
    assert again == {number: text for number, text in once.items() if number != stopped}, "the round that was cut off"
    assert choice_of(second, tmp_path) == choice_of(whole, tmp_path)
    np.testing.assert_array_equal(floats(second.arrays), floats(whole.arrays))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """The parts of a checkpoint."""
    path = tmp_path_factory.mktemp("saved") / "state"
    run(2, checkpoint=path)
    return read_archive(path)


def test_a_damaged_choice_in_a_checkpoint_is_refused(saved: Saved, tmp_path: Path) -> None:
    plain = from_json(saved["plain"])
    plain["choice"]["uplink"] = "gzip()"
    write_archive(tmp_path / "damaged", saved | {"plain": to_json(plain)})
    with pytest.raises(CorruptError, match="gzip"):
        CompressedStrategy(FedAvg()).load(tmp_path / "damaged")


@pytest.mark.parametrize(
    "damaged",
    [
        [1],
        "text",
        {"reached": -1},
        {"share": 2},
        {"fetched": float("nan")},
        {"sent": -1},
        {"gain": 0.0},
        {"inequality": -1.0},
        {"budget": {"noise": -1.0}},
        {"budget": {"first": [0.0]}},
        {"budget": {"last": [0.0]}},
        {"budget": [1]},
        {"budget": {"other": 1}},
        {"correction": {"rounds": -1}},
        {"correction": {"undone": float("nan")}},
        {"correction": {"undone_squares": -1.0}},
        {"correction": {"errors": -1.0}},
        {"correction": {"rounds": 12, "undone": 3.0}},
        {"correction": {"error": [0.0]}},
        {"correction": [1]},
        {"demand": {"quarter": 5}},
        {"demand": {"rounds": -1}},
        {"demand": {"asked": float("inf")}},
        {"demand": {"shares": float("nan")}},
        {"demand": {"share_squares": -1.0}},
        {"demand": {"unpublished": -1.0}},
        {"demand": {"ratios": -1.0}},
        {"demand": {"is_high": 1}},
        {"demand": [1]},
        {"growth": {"rounds": -1}},
        {"growth": {"first": -1.0}},
        {"growth": {"share": float("nan")}},
        {"growth": {"is_found": 1}},
        {"lateness": {"rounds": -1}},
        {"lateness": {"unpublished": float("inf")}},
        {"lateness": {"whole_squares": -1.0}},
        {"lateness": [1]},
        {"repetition": {"times": float("nan")}},
        {"repetition": {"pause": -1}},
        {"repetition": {"until": 1.5}},
    ],
)
def test_any_damage_of_the_choice_is_an_error_of_the_checkpoint(damaged: object, saved: Saved, tmp_path: Path) -> None:
    write_archive(tmp_path / "damaged", saved | {"plain": to_json(from_json(saved["plain"]) | {"choice": damaged})})
    with pytest.raises(CorruptError, match="choice"):
        CompressedStrategy(FedAvg()).load(tmp_path / "damaged")


def test_a_checkpoint_from_before_some_measurements_is_read(saved: Saved, tmp_path: Path) -> None:
    plain = from_json(saved["plain"])
    for name in ("inequality", "correction", "demand", "growth", "lateness_soon", "lateness", "repetition"):
        del plain["choice"][name]
    write_archive(tmp_path / "older", saved | {"plain": to_json(plain)})
    strategy = CompressedStrategy(FedAvg())
    strategy.load(tmp_path / "older")
    assert choice_of(strategy, tmp_path)["inequality"] == 1
    assert choice_of(strategy, tmp_path)["lateness"]["rounds"] == 0


def test_residuals_of_a_run_with_stc_are_sent_when_it_continues_with_the_choice(tmp_path: Path) -> None:
    stc, grid = fedcomp.stc(density=0.01), RecordingGrid()
    first = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=stc, downlink=stc)
    first.start(grid, model((60, 60)), num_rounds=5)
    first.save(tmp_path / "state")
    second = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    second.load(tmp_path / "state")
    second.start(grid, second.arrays, num_rounds=5)
    assert set(names(grid.per_round)) == {"stc"}


def test_a_residual_is_published_at_once_if_the_strategy_then_makes_another_step(tmp_path: Path) -> None:
    first, _ = run(40, half(), checkpoint=tmp_path / "state", stop=2)
    assert names([first.compressors[1]]) == ["stc"]
    second = CompressedStrategy(FedAvgM(fraction_train=0.5, fraction_evaluate=0.0))
    second.load(tmp_path / "state")
    left_out = np.linalg.norm(second.publisher.memory["residual"])
    with pytest.raises(Stopped):
        second.start(RecordingGrid(), second.arrays, num_rounds=120, evaluate_fn=stop_after(3))
    assert np.linalg.norm(second.publisher.memory["residual"]) < 1e-3 * left_out


def test_versions_keep_their_residual_in_a_run_that_becomes_short(tmp_path: Path) -> None:
    """Only error feedback sends what they have left out."""
    first, _ = run(40, half(), checkpoint=tmp_path / "state", stop=2)
    second = CompressedStrategy(half())
    second.load(tmp_path / "state")
    second.start(RecordingGrid(), second.arrays, num_rounds=3)
    assert names([first.compressors[1], second.compressors[1]]) == ["stc", "topk"]


def test_nodes_that_evaluate_count_as_reached() -> None:
    """All nodes hold each version then: a version is fetched by each, and first contacts happen once."""
    alone, _ = run(6, FedAvg(fraction_train=0.5, fraction_evaluate=0.0))
    evaluated, _ = run(6, FedAvg(fraction_train=0.5, fraction_evaluate=1.0))
    few, many = (each.publisher.history.frames()[-2].size for each in (alone, evaluated))
    assert many < few


def test_nodes_that_evaluate_without_the_model_are_not_reached(tmp_path: Path) -> None:
    class Asks(FedAvg):
        """Sends a config alone for evaluation."""

        def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
            content = RecordDict({"config": config})
            return [Message(content, dst_node_id=node, message_type="evaluate") for node in grid.get_node_ids()]

    strategy = CompressedStrategy(Asks(fraction_train=0.5))
    strategy.start(RecordingGrid(learning()), FLAT, num_rounds=2)
    assert choice_of(strategy, tmp_path)["reached"] == NODES // 2


UPLINK = fedcomp.stc(density=0.05)


def balanced_run(
    downlink: fedcomp.Compressor, rounds: int, checkpoint: Path | None = None, stop: int = 0
) -> tuple[CompressedStrategy, LocalGrid, list[str]]:
    """Run four of twenty nodes a round, and return the downlink of each; after round `stop`, go on from the checkpoint."""
    random.seed(5)
    grid, used = LocalGrid(app(), 20, in_memory=True), list[str]()

    def begin() -> CompressedStrategy:
        strategy = CompressedStrategy(
            FedAvg(fraction_train=0.2, fraction_evaluate=0.0),
            uplink=UPLINK,
            downlink=downlink,
            checkpoint=checkpoint_at(checkpoint),
            on_round=lambda _: used.append(strategy.compressors[1]),
        )
        return strategy

    strategy = begin()
    strategy.start(grid, model((60, 60)), num_rounds=stop or rounds)
    if stop and checkpoint is not None:
        strategy = begin()
        strategy.load(checkpoint)
        strategy.start(grid, strategy.arrays, num_rounds=rounds - stop)
    return strategy, grid, used


def fetched_per_sent(strategy: CompressedStrategy, last: int) -> float:
    """Return what returning nodes have fetched over what they have sent in the last rounds."""
    parts = [
        part
        for number in range(strategy.round - last + 1, strategy.round + 1)
        for part in strategy.ledger.nodes_of_round(number).values()
        if part.uplink_bytes and not part.first_model_bytes
    ]
    return sum(part.downlink_bytes for part in parts) / sum(part.uplink_bytes for part in parts)


def test_with_a_fixed_density_returning_nodes_fetch_more_than_they_send() -> None:
    plain, _, fixed = balanced_run(fedcomp.stc(density=0.1), 20)
    assert set(fixed) == {"stc(density=0.1)"}
    assert fetched_per_sent(plain, 10) > 3


@pytest.mark.sample(1)
@pytest.mark.parametrize("balance", [1.0, 2.0])
def test_returning_nodes_fetch_in_balance_with_what_they_send(balance: float) -> None:
    strategy, _, used = balanced_run(fedcomp.balanced(fedcomp.stc(density=0.1), balance), 120)
    assert fetched_per_sent(strategy, 80) == pytest.approx(balance, rel=0.05)
    assert used[0] == "stc(density=0.02)", "a fifth of it, as the nodes of a round are a fifth of all"
    assert used[0] == used[1] == used[2], "the first models of the first round do not count"
    assert len(set(used)) > 20
    assert strategy.compressors == (str(UPLINK), used[-1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_what_nodes_fetch_to_evaluate_counts(share: float) -> None:
    random.seed(5)
    inner = FedAvg(fraction_train=0.2, fraction_evaluate=share)
    strategy = CompressedStrategy(inner, uplink=UPLINK, downlink=fedcomp.balanced(fedcomp.stc(density=0.1)))
    strategy.start(LocalGrid(app(), 10, in_memory=True), model((200, 200)), num_rounds=45)
    assert fetched_per_sent(strategy, 20) == pytest.approx(1.0, rel=0.15)


def test_bytes_of_refused_replies_do_not_count() -> None:
    """One of ten nodes sends a damaged frame as large as a hundred updates, again and again."""

    class Flooded(LocalGrid):
        """A grid whose node 3 floods the server."""

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            if len(self.contexts) and strategy.round > 5:
                for reply in replies:
                    if reply.metadata.src_node_id == 3:
                        record = records.pack(bytes(100_000))
                        (key,) = reply.content.array_records
                        reply.content[key] = record
            return replies

    ends = []
    for grid in (LocalGrid, Flooded):
        random.seed(5)
        strategy = CompressedStrategy(
            FedAvg(fraction_train=0.4, fraction_evaluate=0.0),
            uplink=UPLINK,
            downlink=fedcomp.balanced(fedcomp.stc(density=0.1)),
        )
        strategy.start(grid(app(), 10, in_memory=True), model((60, 60)), num_rounds=18)
        ends.append(float(fedcomp.parse(strategy.compressors[1]).settings[0][1]))  # type: ignore[arg-type]
    assert ends[1] < 1.5 * ends[0]


def test_before_the_first_round_the_named_compressors_are_those() -> None:
    downlink = fedcomp.balanced("stc(density=0.05)")
    strategy = CompressedStrategy(FedAvg(), uplink=UPLINK, downlink=downlink)
    assert strategy.compressors == (str(UPLINK), str(downlink))


def test_the_density_is_never_above_the_named_one() -> None:
    """Dense updates would balance any downlink."""
    random.seed(5)
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.balanced("stc(density=0.05)")
    )
    strategy.start(LocalGrid(app(), 4, in_memory=True), model(), num_rounds=12)
    assert strategy.compressors[1] == "stc(density=0.05)"


def test_a_restarted_server_balances_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    downlink = fedcomp.balanced(fedcomp.stc(density=0.05))
    whole, _, expected = balanced_run(downlink, 14)
    parts, _, used = balanced_run(downlink, 14, tmp_path / "state", stop=7)
    assert used == expected
    np.testing.assert_array_equal(floats(parts.arrays), floats(whole.arrays))


@pytest.mark.nightly
def test_the_automatic_choice_balances_too() -> None:
    """With a density that follows the residual.  With a fixed one of 1/20, nodes would fetch 2.8 times what they send."""
    random.seed(5)
    uplink = fedcomp.stc(density=0.02)
    strategy = CompressedStrategy(FedAvg(fraction_train=0.2, fraction_evaluate=0.0), uplink=uplink)
    strategy.start(LocalGrid(app(), 20, in_memory=True), model((60, 60)), num_rounds=200)
    assert strategy.compressors[1].startswith("stc(")
    assert fetched_per_sent(strategy, 100) < 2.5
