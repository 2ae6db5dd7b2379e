"""Nodes that make the first model themselves get no key frame; whoever makes another one is served all the same."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, UserConfig
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import Checkpoint, CompressedStrategy, LocalGrid, records, round_model, to_record
from fedcomp.flower.local_grid import Fault
from fedcomp.wire import Kind, parse_server_message
from tests.flower.toy import Arrays, Start, app, arrays_of, floats, model, state_of, training

NODES = 4
STC = fedcomp.stc(density=0.1)
Routes = list[list[Kind]]


class Tapped(LocalGrid):
    """A grid that records the kinds of the frames in each message, by node."""

    def __init__(self, start: Start | None, nodes: int = NODES, *, in_memory: bool = False, files: Path | None = None):
        def config(node: int) -> UserConfig:
            return {"state-dir": str(files / str(node))} if files else {}

        super().__init__(app(start=start), nodes, node_config=config, in_memory=in_memory)
        self.routes: dict[int, Routes] = {}

    def _deliver(self, message: Message) -> list[Message]:
        found = records.packed(message.content)
        assert found is not None
        frames = parse_server_message(found[1])[1]
        self.routes.setdefault(message.metadata.dst_node_id, []).append([frame.kind for frame in frames])
        return super()._deliver(message)


def tapped(start: Start | None, memory: str, folder: Path, nodes: int = NODES) -> Tapped:
    return Tapped(start, nodes, in_memory=memory == "in memory", files=folder if memory == "files" else None)


def build(**settings: object) -> CompressedStrategy:
    inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    return CompressedStrategy(inner, uplink=STC, **({"downlink": STC, "shared_start": True} | settings))  # type: ignore[arg-type]


def same(_: Context) -> ArrayRecord:
    return model()


def large(_: Context | None) -> ArrayRecord:
    """A model so large that a node's files keep it, and the frames since then beside it."""
    return model((400, 25))


def without_model(_: Context) -> ArrayRecord:
    raise FileNotFoundError("no weights here")


def one_bit(_: Context) -> Arrays:
    arrays = {name: array.copy() for name, array in arrays_of(model()).items()}
    arrays["layer.weight"].view(np.uint32).flat[17] ^= 1
    return arrays


def exact_differs(_: Context) -> Arrays:
    return arrays_of(model()) | {"norm.num_batches_tracked": np.array(4)}


def held_by(grid: LocalGrid, node: int) -> bytes:
    return state_of(grid.contexts[node]).held.vector.tobytes()


@pytest.mark.parametrize("memory", ["context", "in memory", "files"])
def test_the_first_model_is_not_sent_and_everything_else_is_the_same(memory: str, tmp_path: Path) -> None:
    strategies = build(), build(shared_start=False)
    for strategy, start in zip(strategies, (same, None), strict=True):
        grid = tapped(start, memory, tmp_path / str(start))
        strategy.start(grid, model(), num_rounds=3)
        first = Kind.START if start else Kind.KEY
        assert grid.routes == {node: [[first], [Kind.DELTA], [Kind.DELTA]] for node in grid.contexts}
    shared, sent = strategies
    np.testing.assert_array_equal(floats(shared.arrays), floats(sent.arrays))
    assert shared.ledger.uplink_bytes == sent.ledger.uplink_bytes
    saved = sent.ledger.downlink_bytes - shared.ledger.downlink_bytes
    assert saved == NODES * (4 * 1025 + 8)  # the vector and the counter


@pytest.mark.parametrize("arrays", [arrays_of(model()), model()], ids=["arrays", "record"])
def test_a_start_is_named_arrays_or_a_record(arrays: Arrays | ArrayRecord) -> None:
    grid = Tapped(lambda _: arrays)
    build().start(grid, model(), num_rounds=1)
    assert grid.routes == {node: [[Kind.START]] for node in grid.contexts}
    assert state_of(grid.contexts[1]).pending


@pytest.mark.sample(2)
@pytest.mark.one_flower
@pytest.mark.parametrize("memory", ["context", "in memory", "files"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_rounded_first_model_takes_fewer_bits(memory: str, shared: bool, tmp_path: Path) -> None:
    """Nodes 3 and 4 have no start; a jump from the rounded model leads to the newest version like any other."""
    coarse = round_model(large(None))
    assert floats(coarse).tolist() != floats(large(None)).tolist()

    def start(context: Context) -> ArrayRecord:
        return coarse if context.node_id < 3 else large(None)

    sizes: list[int] = []
    for first in (large(None), coarse):
        grid = tapped(start if first is coarse else None, memory, tmp_path / str(len(sizes)))
        strategy = build(shared_start=shared and first is coarse)
        grid.order(4, Fault.LOSE_MESSAGE, Fault.LOSE_MESSAGE)
        strategy.start(grid, first, num_rounds=6)
        sizes.append(strategy.ledger.by_node()[3].key_bytes)
        assert {held_by(grid, node) for node in grid.contexts} == {held_by(grid, 1)}
    assert grid.routes[1][0] == ([Kind.START] if shared else [Kind.KEY])
    assert sizes[1] < 9.5 / 32 * sizes[0]


def test_arrays_are_rounded_like_records() -> None:
    assert round_model(arrays_of(model()), 5) == round_model(model(), 5)
    assert round_model(model(), 5) != round_model(model(), 8)


OTHERS: dict[str, Start] = {
    "one bit": one_bit,
    "an exact tensor": exact_differs,
    "another shape": lambda _: model((40, 24)),
    "a tensor less": lambda _: {name: array for name, array in arrays_of(model()).items() if "bias" not in name},
    "no arrays": lambda _: {"layer.weight": 3},  # type: ignore[dict-item]
    "raises": without_model,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_node_with_another_start_is_served_in_its_next_round(
    other: Start, flower_log: pytest.LogCaptureFixture
) -> None:
    def start(context: Context) -> object:
        if context.node_id != 2:
            return model()
        return other(context)

    grid, strategy = Tapped(start), build()  # type: ignore[arg-type]
    strategy.start(grid, model(), num_rounds=3)
    assert grid.routes[2] == [[Kind.START], [Kind.KEY, Kind.DELTA], [Kind.DELTA]]
    assert grid.routes[1] == [[Kind.START], [Kind.DELTA], [Kind.DELTA]]
    assert held_by(grid, 1) == held_by(grid, 2)
    assert strategy.ledger.by_node()[2].refused == strategy.ledger.refused == 1
    said = [record.message for record in flower_log.records if "this node cannot follow" in record.message]
    assert len(said) == 1
    assert "start" in said[0]


def test_without_a_start_a_node_gets_key_frames_and_says_what_is_missing(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    grid, strategy = Tapped(None), build()
    strategy.start(grid, model(), num_rounds=3)
    assert grid.routes == {node: [[Kind.START], [Kind.KEY], [Kind.DELTA]] for node in grid.contexts}
    assert "CompressionMod(start=...)" in flower_log.text


def test_a_late_node_makes_the_start_and_jumps_from_there() -> None:
    grid, strategy = Tapped(large), build()
    grid.order(3, *[Fault.LOSE_MESSAGE] * 3)
    strategy.start(grid, large(None), num_rounds=5)
    assert grid.routes[3][3] == [Kind.START, Kind.JUMP]
    assert held_by(grid, 3) == held_by(grid, 1)


def test_where_the_deltas_are_gone_a_late_node_gets_the_model() -> None:
    grid, strategy = Tapped(same), build(downlink=fedcomp.dense())
    grid.order(3, *[Fault.LOSE_MESSAGE] * 2)
    strategy.start(grid, model(), num_rounds=4)
    assert grid.routes[3][2] == [Kind.KEY]
    assert held_by(grid, 3) == held_by(grid, 1)


@pytest.mark.sample(16)
@pytest.mark.one_flower
@pytest.mark.parametrize("memory", ["context", "in memory", "files"])
@pytest.mark.parametrize("faults", [*((one,) for one in Fault), (Fault.LOSE_REPLY,) * 3, (Fault.FORGET, Fault.CRASH)])
@pytest.mark.parametrize("when", [0, 2])
def test_faults_leave_every_node_with_the_published_model(
    faults: tuple[Fault, ...], when: int, memory: str, tmp_path: Path
) -> None:
    grid, strategy = tapped(large, memory, tmp_path, nodes=2), build()
    for _ in range(when):
        strategy.start(grid, strategy.arrays if strategy.round else large(None), num_rounds=1)
    grid.order(2, *faults)
    strategy.start(grid, strategy.arrays if strategy.round else large(None), num_rounds=4)
    newest = strategy.publisher.history.frames()[-1]  # made of the replies, so no node has it yet
    assert {state_of(context).held.fingerprint for context in grid.contexts.values()} == {newest.before}
    assert not list(tmp_path.rglob("*.damaged"))


def test_a_resumed_server_still_names_the_start(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    grid, strategy = Tapped(large), build(checkpoint=Checkpoint(path))
    grid.order(4, Fault.LOSE_MESSAGE, Fault.LOSE_MESSAGE)
    strategy.start(grid, large(None), num_rounds=2)
    again = build(checkpoint=Checkpoint(path), shared_start=False)  # the setting matters for the first version alone
    again.load(path)
    again.start(grid, again.arrays, num_rounds=2)
    assert grid.routes[4][2][0] is Kind.START
    assert held_by(grid, 4) == held_by(grid, 1)


def test_a_resumed_server_knows_who_needs_the_model(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    grid, strategy = Tapped(None), build(checkpoint=Checkpoint(path))
    with pytest.raises(NoUpdateError, match="gets a key frame next"):  # the only round
        strategy.start(grid, model(), num_rounds=1)
    again = build(checkpoint=Checkpoint(path))
    again.load(path)
    again.start(grid, model(), num_rounds=2)
    assert grid.routes == {node: [[Kind.START], [Kind.KEY], [Kind.DELTA]] for node in grid.contexts}


def test_the_start_is_made_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def start(context: Context) -> ArrayRecord:
        calls.append(context.node_id)
        return model()

    grid, strategy = Tapped(start, files=tmp_path), build()
    strategy.start(grid, model(), num_rounds=3)
    grid.contexts[1].state = type(grid.contexts[1].state)()  # a device that restarts
    strategy.start(grid, strategy.arrays, num_rounds=3)
    assert sorted(calls) == [1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_and_local_tensors(dtype: type[np.floating]) -> None:
    arrays = {"w": np.random.default_rng(0).standard_normal((30, 40)).astype(dtype), "head": np.ones(3, np.float32)}

    def start(_: Context) -> Arrays:
        return arrays | {"head": np.zeros(3, np.float32)}  # each node has its own

    def step(given: Arrays, _: Context, number: int) -> Arrays:
        return {"w": given["w"] + dtype(number), "head": np.ones(3, np.float32)}

    strategy = build(local=["head"])
    strategy.start(LocalGrid(training(step, start=start), 2), to_record(arrays), num_rounds=2)
    assert strategy.ledger.refused == 0
    assert strategy.ledger.downlink_bytes < 2 * 1200 * np.dtype(dtype).itemsize


def test_a_setting_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(ValueError, match="shared_start is 1; it is True or False"):
        build(shared_start=1)
