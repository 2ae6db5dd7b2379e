"""Split training on a grid: several nodes, faults, state in files, and what is refused before anything runs."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn import functional

import fedcomp
from fedcomp.flower import LocalGrid, records, to_record
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.split import LowerParts, SplitClient, SplitTraining
from fedcomp.split import SplitSettings, cut, weights_of
from tests.flower.split.app import SETTINGS, Run, client_app, grid, start
from tests.flower.superlink_grid import SuperLinkGrid
from tests.split.pair import Pair, model, samples

SHARED = nn.Linear(4, 6)
MODES: list[LowerParts] = ["averaged", "in-turn"]
HARMLESS = [each for each in Fault if each is not Fault.FORGET]


def in_folders(path: Path) -> Any:
    def config(node: int) -> UserConfig:
        return {"state-dir": str(path / str(node))}

    return config


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", MODES)
def test_several_nodes_train_one_model(mode: LowerParts) -> None:
    run = Run(SplitSettings(fedcomp.cgx(bits=2), batch_size=8, steps=6, learning_rate=0.5), lower_parts=mode)
    before, rounds = run.accuracy(), list[int]()
    run.training.run(grid(), num_rounds=6, on_round=rounds.append)
    assert rounds == list(range(1, 7))
    assert before < 0.5
    assert run.accuracy() > 0.8
    traffic = run.training.traffic
    assert traffic.dense_uplink_bytes == 6 * (_visits() * 24 + 3 * 120), "6 activations of 4 bytes a visit, 30 weights"
    assert 3 * 20 * 25 <= traffic.first_bytes < 3 * 20 * 27, "6 float32 and a label of each sample"
    assert traffic.weight_bytes < traffic.sent_bytes < traffic.dense_bytes + 6 * 3 * 14 * 300


def _visits() -> int:
    """Return the samples that three nodes visit in a round of 6 batches: 8, 8, 4, and again."""
    return 3 * 2 * 20


def test_one_node_trains_as_without_a_grid() -> None:
    run, pair = Run(), Pair(SETTINGS)
    app = client_app(lambda context: (cut(model(seed=9), "1")[0], *samples()))
    run.training.run(LocalGrid(app, 1), num_rounds=3)
    pair.run(rounds=3)
    assert run.bits() == pair.bits()


def test_over_a_superlink_no_batch_waits_three_seconds_for_its_answer() -> None:
    run = Run()
    app = client_app(lambda context: (cut(model(seed=9), "1")[0], *samples()))
    run.training.run(SuperLinkGrid(app, 2), num_rounds=1)
    assert run.training.traffic.sent_bytes


@pytest.mark.parametrize("mode", MODES)
def test_without_compression_the_upper_part_and_the_lower_ones_train_as_by_hand(mode: LowerParts) -> None:
    settings = SplitSettings(fedcomp.dense(), fedcomp.dense(), batch_size=20, steps=2)
    run, whole = Run(settings, mode), model()
    run.training.run(grid(2), num_rounds=2)
    for _ in range(2):
        lower, upper = whole[0], whole[2:]
        assert isinstance(lower, nn.Linear)
        copies = [copy.deepcopy(lower), copy.deepcopy(lower)] if mode == "averaged" else [lower, lower]
        turns = [(step, node) for step in range(2) for node in (0, 1)]
        for _, node in turns if mode == "averaged" else sorted(turns, key=lambda turn: turn[1]):
            x, y = samples(seed=node + 1)
            optimizer = torch.optim.SGD([*copies[node].parameters(), *upper.parameters()], 0.1)
            optimizer.zero_grad()
            functional.cross_entropy(upper(torch.tanh(copies[node](x))), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            for name, weight in lower.named_parameters():
                weight.copy_((copies[0].get_parameter(name) + copies[1].get_parameter(name)) / 2)
    for one, other in zip(whole.parameters(), run.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_lost_and_repeated_messages_and_crashes_change_no_bit(seed: int, mode: LowerParts) -> None:
    quiet, run, nodes, rng = Run(lower_parts=mode), Run(lower_parts=mode), grid(1), np.random.default_rng(seed)
    quiet.training.run(grid(1), num_rounds=4)
    faults = [None, *HARMLESS]
    for _ in range(60):
        fault = faults[int(rng.integers(len(faults)))]
        if fault is None or fault in (Fault.DELIVER_TWICE, Fault.DOUBLE_REPLY):
            nodes.order(1, *([fault] if fault else []))
        else:
            nodes.order(1, fault, Fault.DOUBLE_REPLY)  # no node is left out
    ordered = len(nodes.faults[1])
    run.training.run(nodes, num_rounds=4)
    assert ordered - len(nodes.faults[1]) >= 40
    assert run.bits() == quiet.bits()


@pytest.mark.parametrize("mode", MODES)
def test_nodes_that_forget_everything_are_repaired(mode: LowerParts) -> None:
    run, nodes, rng = Run(lower_parts=mode), grid(2), np.random.default_rng(0)
    for _ in range(8):
        for node in (1, 2):
            nodes.order(node, Fault.FORGET if rng.random() < 0.2 else Fault.DOUBLE_REPLY, Fault.DOUBLE_REPLY)
    run.training.run(nodes, num_rounds=3)
    assert run.training.traffic.first_bytes > 2 * 20 * 25, "more than each sample once"
    while any(nodes.faults.values()):
        run.training.run(nodes, num_rounds=1)
    run.training.run(nodes, num_rounds=1)
    after = run.training.traffic.first_bytes
    run.training.run(nodes, num_rounds=2)
    assert run.training.traffic.first_bytes == after, "both ends hold the same again"


def test_a_new_server_continues_from_saved_weights(tmp_path: Path) -> None:
    """Its nodes keep their files, which are of another training: they send each sample in full once more."""
    run, nodes = Run(), grid(3, in_folders(tmp_path))
    run.training.run(nodes, num_rounds=5)
    reached = run.accuracy()
    again = Run()
    again.model.load_state_dict(run.model.state_dict())
    again.training.run(nodes, num_rounds=1)
    assert again.accuracy() > reached - 0.03 > 0.6
    assert 3 * 20 * 25 <= again.training.traffic.first_bytes < 3 * 20 * 27, "6 float32 and a label of each sample"
    assert again.training.traffic.weight_bytes < 1.2 * run.training.traffic.weight_bytes / 5


def test_a_node_that_never_answers_is_left_out_of_the_round() -> None:
    run, alone, nodes = Run(), Run(), grid(2)
    nodes.order(2, *[Fault.LOSE_REPLY] * 5)
    run.training.run(nodes, num_rounds=1)
    alone.training.run(grid(1), num_rounds=1)
    assert run.bits() == alone.bits()
    run.training.run(nodes, num_rounds=1)
    alone.training.run(grid(1), num_rounds=1)
    assert run.bits() != alone.bits(), "it is back"


def test_a_restarted_node_continues_from_its_files(tmp_path: Path) -> None:
    quiet, run = Run(), Run()
    quiet.training.run(grid(2), num_rounds=2)
    nodes = grid(2, in_folders(tmp_path))
    for node in (1, 2):
        nodes.order(node, *[Fault.DOUBLE_REPLY, Fault.FORGET, Fault.FORGET] * 9)
    run.training.run(nodes, num_rounds=2)
    assert run.bits() == quiet.bits(), "Context.state is lost, the files are not"
    assert not nodes.contexts[1].state.array_records
    assert sorted(path.name for path in (tmp_path / "1" / "split").iterdir()) == [".lock", "rows", "state"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", ["rows gone", "rows cut", "rows flipped", "state cut", "state gone"])
def test_damaged_files_are_found_and_repaired(damage: str, tmp_path: Path) -> None:
    run, nodes = Run(), grid(1, in_folders(tmp_path))
    run.training.run(nodes, num_rounds=2)
    name, what = damage.split()
    path = tmp_path / "1" / "split" / name
    data = path.read_bytes()
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if what == "cut" else bytes(byte ^ 1 for byte in data))
    before = run.training.traffic.first_bytes
    run.training.run(nodes, num_rounds=2)
    assert run.training.traffic.first_bytes - before >= 20 * 25 * (0.5 if what == "cut" and name == "rows" else 1)
    after = run.training.traffic.first_bytes
    run.training.run(nodes, num_rounds=2)
    assert run.training.traffic.first_bytes == after


def test_a_node_that_is_killed_while_it_writes_its_rows_sends_them_in_full(tmp_path: Path) -> None:
    """The state in its file is that of the message before, and the rows are those of the next one."""
    run, path, old = Run(), tmp_path / "1" / "split" / "state", list[bytes]()

    class Killing(LocalGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Iterator[Message]:
            old.append(path.read_bytes() if path.exists() else b"")
            for reply in super().send_and_receive(messages, timeout=timeout):
                if len(old) == 12:
                    path.write_bytes(old[-1])
                else:
                    yield reply

    run.training.run(Killing(client_app(), 1, node_config=in_folders(tmp_path)), num_rounds=2)
    quiet = Run()
    quiet.training.run(grid(1), num_rounds=2)
    assert run.training.traffic.first_bytes - quiet.training.traffic.first_bytes == 0, "not visited yet"
    nodes = grid(1, in_folders(tmp_path))
    run.training.run(nodes, num_rounds=1)
    assert run.training.traffic.first_bytes - quiet.training.traffic.first_bytes == 8 * 25
    first = run.training.traffic.first_bytes
    run.training.run(nodes, num_rounds=2)
    assert run.training.traffic.first_bytes == first


def test_a_new_training_replaces_the_state_of_the_last_one(tmp_path: Path) -> None:
    nodes, plain = grid(2, in_folders(tmp_path)), grid(2)
    runs = [Run() for _ in range(4)]
    for run, each in zip(runs, (nodes, plain, nodes, plain), strict=True):
        run.training.run(each, num_rounds=1)
    assert runs[0].training.traffic.first_bytes == 2 * 20 * 25
    assert [run.training.traffic for run in runs] == [runs[0].training.traffic] * 4, "no batch is refused"


def test_a_state_dir_that_cannot_be_used_leaves_the_node_out(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("a file")
    run, alone = Run(), Run()
    run.training.run(grid(2, in_folders(tmp_path)), num_rounds=1)
    other = client_app(lambda context: start(Context(0, 2, {}, RecordDict(), {})))
    alone_grid = LocalGrid(other, 1, node_config=lambda node: {"partition-id": 1})
    alone.training.run(alone_grid, num_rounds=1)
    assert run.bits() == alone.bits()


class Damaging(LocalGrid):
    """Damages each third answer: it is cut, of another kind, or holds no frame."""

    turn = 0

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Iterator[Message]:
        for reply in super().send_and_receive(messages, timeout=timeout):
            self.turn += 1
            if self.turn % 3 == 0:
                data = reply.content.array_records["fedcomp"]["fedcomp"].data
                content = (data[:-5], b"", bytes(len(data)))[self.turn // 3 % 3]
                reply.content = RecordDict({"fedcomp": records.pack(content)} if self.turn % 2 else {})
            yield reply


def test_hostile_answers_do_not_end_a_training_and_change_nothing() -> None:
    run, quiet = Run(), Run()
    run.training.run(Damaging(client_app(), 1), num_rounds=3)
    quiet.training.run(grid(1), num_rounds=3)
    assert run.bits() == quiet.bits()


def normed() -> nn.Sequential:
    """Return a model with batch normalization above the cut behind "1"."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def test_a_single_sample_that_is_left_of_an_epoch_joins_the_batch_before_it() -> None:
    """Batch normalization takes no batch of one, on either side of the cut."""
    settings = SplitSettings(batch_size=8, steps=2)
    lower, upper = cut(normed(), "1")
    training = SplitTraining(lower, upper, samples()[0], settings)
    app = client_app(lambda context: (cut(normed(), "1")[0], *samples(17)))
    before = weights_of(lower)
    training.run(LocalGrid(app, 1), num_rounds=3)
    assert lower.get_buffer("1.num_batches_tracked") == 3 * 2
    assert training.traffic.dense_uplink_bytes == 3 * (17 * 24 + sum(array.nbytes for array in before.values()))


COMPRESSORS = [fedcomp.qsgd(levels=3), fedcomp.eden(bits=2), fedcomp.topk(density=0.3, feedback=False), fedcomp.dense()]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_a_batch_that_is_sent_again_has_the_same_random_numbers(compressor: Any) -> None:
    """Those of dropout in the lower part and of the compressors on both ways."""

    def trained(*faults: Fault) -> bytes:
        torch.manual_seed(1)
        whole = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 3))
        nodes = LocalGrid(client_app(lambda context: (cut(copy.deepcopy(whole), "1")[0], *samples())), 1)
        nodes.order(1, *faults)
        settings = SplitSettings(compressor, compressor, batch_size=8, steps=4)
        SplitTraining(*cut(whole, "1"), samples()[0], settings, seed=1).run(nodes, num_rounds=2)
        return b"".join(tensor.detach().numpy().tobytes() for tensor in whole.state_dict().values())

    assert trained(Fault.DELIVER_TWICE, Fault.LOSE_REPLY, Fault.LOSE_MESSAGE) == trained()


@pytest.mark.parametrize(("batches", "moves"), [(5, False), (4, True)])
def test_a_node_that_lost_its_state_counts_with_what_it_has_trained_since(batches: int, moves: bool) -> None:
    """In a round of five batches; one that has trained none since leaves the lower part as it was."""
    run, nodes = Run(SplitSettings(fedcomp.dense(), fedcomp.dense(), batch_size=8, steps=5)), grid(1)
    before = run.model.get_parameter("0.weight").detach().clone()
    upper = run.model.get_parameter("2.weight").detach().clone()
    nodes.order(1, *[Fault.DELIVER_TWICE] * batches, Fault.FORGET)
    run.training.run(nodes, num_rounds=1)
    assert torch.equal(run.model.get_parameter("0.weight"), before) == (not moves)
    assert not torch.equal(run.model.get_parameter("2.weight"), upper)


def test_a_node_that_has_trained_nothing_since_it_lost_its_state_is_left_out_of_the_mean() -> None:
    def trained(*faults: Fault) -> bytes:
        run, nodes = Run(SplitSettings(fedcomp.dense(), fedcomp.dense(), batch_size=8, steps=5)), grid(2)
        nodes.order(1, *[Fault.DELIVER_TWICE] * 5, *faults)
        run.training.run(nodes, num_rounds=1)
        return run.bits()

    assert trained(Fault.FORGET) == trained(*[Fault.LOSE_MESSAGE] * 5) != trained()


def test_a_query_of_another_server_is_refused() -> None:
    nodes = grid(1)
    [reply] = nodes.send_and_receive([Message(RecordDict(), dst_node_id=1, message_type="query.split")])
    assert reply.has_error()
    assert "the server needs a SplitTraining" in str(reply.error.reason)


def test_an_app_of_other_layers_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    before = run.bits()
    app = client_app(lambda context: (nn.Linear(4, 5), *samples()))
    with caplog.at_level("ERROR", "flwr"):
        run.training.run(LocalGrid(app, 1), num_rounds=1)
    assert run.bits() == before
    assert "no node finished round 1" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower_parts": "both"}, "lower_parts is 'both'"),
        ({"seed": -1}, "seed is -1"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"upper": nn.Linear(7, 3)}, r"the upper part does not take activations \(1, 6\)"),
        ({"upper": nn.Sequential(nn.Linear(6, 3), nn.Flatten(0))}, r"the upper part returns \(3,\)"),
        ({"lower": nn.Sequential(nn.Linear(4, 6), nn.Flatten(0))}, "the lower part returns"),
        ({"lower": nn.Flatten()}, "the lower part has no trained weights"),
        ({"upper": nn.Identity()}, "the upper part has no trained weights"),
        ({"example": torch.zeros(1, 9)}, r"the lower part does not take samples torch.float32 \(1, 9\)"),
        ({"example": torch.zeros(1, 4).half()}, r"the lower part does not take samples torch.float16 \(1, 4\)"),
        ({"lower": nn.Linear(4, 6).bfloat16(), "example": torch.zeros(1, 4).bfloat16()}, "weight is bfloat16; SGD"),
        ({"settings": "split()"}, r"settings is 'split\(\)'; SplitSettings are needed"),
        ({"loss": None}, "loss is None, which takes no outputs"),
        ({"loss": lambda outputs, labels: outputs - labels}, r"which returns a tensor of shape \(1, 3\); one number"),
        ({"loss": lambda outputs, labels: 1.0}, "which returns a float; one number"),
        (
            {"lower": SHARED, "upper": nn.Sequential(nn.Linear(6, 4), SHARED, nn.Linear(6, 3))},
            "1.weight is on both sides",
        ),
    ],
)
def test_parts_and_settings_that_do_not_fit_are_refused_in_one_sentence(
    arguments: dict[str, Any], message: str
) -> None:
    lower, upper = cut(model(), "1")
    given: dict[str, Any] = {"lower": lower, "upper": upper, "example": samples()[0], **arguments}
    with pytest.raises(ValueError, match=message) as error:
        SplitTraining(**given)
    assert "\n" not in str(error.value)


def test_too_few_nodes_are_an_error() -> None:
    with pytest.raises(ValueError, match="node_timeout_s is -1"):
        Run().training.run(grid(2), num_rounds=1, node_timeout_s=-1)
    with pytest.raises(TimeoutError, match="2 nodes after 0.01 s; 3 are needed"):
        Run().training.run(grid(2), num_rounds=1, min_nodes=3, node_timeout_s=0.01)


def test_the_state_of_the_app_is_left_alone() -> None:
    app = ClientApp()
    client = SplitClient(start)

    @app.query("split")
    def answer(message: Message, context: Context) -> Message:
        context.state.setdefault("mine", to_record({"w": np.ones(1, np.float32)}))
        return client(message, context)

    nodes = LocalGrid(app, 1)
    Run().training.run(nodes, num_rounds=1)
    assert sorted(nodes.contexts[1].state) == ["fedcomp.split", "fedcomp.split.plain", "mine"]


def _normalized() -> nn.Sequential:
    """Return a model whose batch normalization is frozen, as in fine-tuning."""
    torch.manual_seed(2)
    layers = [
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 3),
    ]
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d):
            layer.eval().requires_grad_(False)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_normalization_stays_as_it_is(frozen: bool) -> None:
    def make() -> nn.Sequential:
        return _normalized() if frozen else _normalized().train()

    app = client_app(lambda context: (cut(make(), "2")[0], *samples()))
    whole = make()
    before = {name: buffer.clone() for name, buffer in whole.named_buffers()}
    lower, upper = cut(whole, "2")
    training = SplitTraining(lower, upper, torch.zeros(1, 4), SETTINGS)
    weights = weights_of(lower)
    training.run(LocalGrid(app, 1), num_rounds=2)
    assert not np.array_equal(weights_of(lower)["0.weight"], weights["0.weight"])
    assert [module.training for module in (whole[1], whole[4])] == [not frozen] * 2
    moved = {name for name, buffer in whole.named_buffers() if not torch.equal(buffer, before[name])}
    assert moved == (set() if frozen else before.keys())


def test_the_log_says_what_is_scaled_down(flower_log: pytest.LogCaptureFixture) -> None:
    """All trained weights have one bound, so none of them is named alone."""
    lower, upper = cut(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), "1")
    training = SplitTraining(lower, upper, torch.zeros(1, 4), SplitSettings())
    near = {name: np.asarray(array + 1, array.dtype) for name, array in weights_of(lower).items()}
    for name, what in (("1.weight", "its trained weights"), ("0.running_mean", "0.running_mean")):
        far = near | {name: near[name] + 1000}
        training._bounded({1: near, 2: near, 3: far})  # noqa: SLF001
        (line,) = [record.getMessage() for record in flower_log.records]
        assert f"node 3 changed {what} " in line
        flower_log.clear()


def test_samples_in_raw_units_train_as_without_a_bound(flower_log: pytest.LogCaptureFixture) -> None:
    """Their variances of a million are no weights."""

    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    def start_raw(context: Context) -> tuple[nn.Module, Tensor, Tensor]:
        x, y = samples(40, seed=context.node_id)
        return cut(make(), "3")[0], 300 + 1000 * x, y

    def trained(clip: float) -> bytes:
        whole = make()
        settings = SplitSettings(batch_size=8, steps=10, clip=clip)
        training = SplitTraining(*cut(whole, "3"), torch.zeros(1, 4), settings)
        training.run(LocalGrid(client_app(start_raw), 3), num_rounds=3)
        return b"".join(tensor.numpy().tobytes() for tensor in whole.state_dict().values())

    assert trained(clip=5) == trained(clip=0)
    assert "scaled down" not in flower_log.text


def dropping() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)
    )


def test_the_seed_decides_the_dropout_of_both_parts_and_the_global_generator_stays() -> None:
    def trained(seed: int, global_seed: int) -> bytes:
        whole = dropping()
        training = SplitTraining(*cut(whole, "1"), samples()[0], SETTINGS, seed=seed)
        nodes = LocalGrid(client_app(lambda context: (cut(dropping(), "1")[0], *samples())), 1)
        nodes.order(1, Fault.LOSE_REPLY, Fault.LOSE_REPLY)  # so that the app makes its part before
        training.run(nodes, num_rounds=1)
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        training.run(nodes, num_rounds=1)
        assert torch.equal(torch.get_rng_state(), before)
        return b"".join(tensor.numpy().tobytes() for tensor in whole.state_dict().values())

    assert trained(1, 1) == trained(1, 2) != trained(2, 1)


@pytest.mark.parametrize("training", [True, False])
def test_a_run_leaves_the_modes_of_the_upper_part_and_no_gradients(training: bool) -> None:
    whole = dropping().train(training)
    split = SplitTraining(*cut(whole, "1"), samples()[0], SETTINGS)
    app = client_app(lambda context: (cut(dropping(), "1")[0], *samples()))
    split.run(LocalGrid(app, 1), num_rounds=1)
    assert {module.training for module in whole.modules()} == {training}
    assert all(weight.grad is None for weight in whole.parameters())
    assert whole.get_buffer("3.num_batches_tracked") == SETTINGS.steps, "it trains in training mode all the same"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sparse_gradients_train_the_same_weights(momentum: float) -> None:
    def make(sparse: bool) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.EmbeddingBag(9, 6, mode="mean", sparse=sparse), nn.ReLU(), nn.Linear(6, 3))

    def trained(sparse: bool) -> dict[str, Tensor]:
        whole, (x, y) = make(sparse), samples()
        words = (4 + 2 * x).clamp(0, 8).long()
        app = client_app(lambda context: (cut(make(sparse), "1")[0], words, y))
        settings = SplitSettings(batch_size=8, steps=6, momentum=momentum)
        SplitTraining(*cut(whole, "1"), words[:1], settings).run(LocalGrid(app, 1), num_rounds=2)
        return whole.state_dict()

    sparse, dense = trained(True), trained(False)
    assert not torch.equal(sparse["0.weight"], make(True).get_parameter("0.weight"))
    torch.testing.assert_close(sparse, dense)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sparse_gradients_train_the_same_upper_part(momentum: float) -> None:
    class Words(nn.Module):
        def __init__(self, sparse: bool) -> None:
            super().__init__()
            self.first, self.words = nn.Linear(6, 3), nn.EmbeddingBag(9, 3, mode="mean", sparse=sparse)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.first(x) + self.words((9 * x.sigmoid()).long())
            return outputs

    def trained(sparse: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        lower, upper = nn.Linear(4, 6), Words(sparse)
        settings = SplitSettings(batch_size=8, steps=6, momentum=momentum)
        app = client_app(lambda context: (nn.Linear(4, 6), *samples()))
        SplitTraining(lower, upper, samples()[0], settings).run(LocalGrid(app, 1), num_rounds=2)
        return upper.state_dict()

    torch.testing.assert_close(trained(True), trained(False))


class Leaving(LocalGrid):
    """Nodes that are connected in some rounds alone: node -> those rounds."""

    rounds: dict[int, range]
    number = 1

    def get_node_ids(self) -> list[int]:
        return [node for node, rounds in self.rounds.items() if self.number in rounds]


def test_the_server_forgets_nodes_that_have_left_and_takes_them_back() -> None:
    training = SplitTraining(*cut(model(), "1"), samples()[0], SETTINGS, ram_bytes=0)
    server = training._server  # noqa: SLF001
    app = client_app(lambda context: (cut(model(seed=9), "1")[0], *samples()))
    grid = Leaving(app, 3)
    grid.rounds = {1: range(1, 99), 2: range(1, 3), 3: range(1, 99, 9)}
    known: dict[int, set[int]] = {}
    files: list[Any] = []

    def after(number: int) -> None:
        grid.number = number + 1
        known[number] = set(server.nodes)
        if number == 1:
            files.extend(record.memory._file for record in server.nodes.values())  # noqa: SLF001

    training.run(grid, num_rounds=20, on_round=after)
    assert [known[number] for number in (1, 12, 13, 19)] == [{1, 2, 3}, {1, 2, 3}, {1, 3}, {1, 3}], (
        "node 3 comes each 9 rounds"
    )
    assert [file.closed for file in files] == [False, True, False]
    sizes = server.bounds.gradients, server.bounds._activations, training._bounds._changes  # noqa: SLF001
    assert [len(each.by_node) for each in sizes] == [2, 2, 2], "a node that has left has no vote"
    grid.rounds[2] = range(21, 99)
    training.run(grid, num_rounds=2, on_round=after)
    assert known[22] == {1, 2, 3}
    record = server.nodes[2]
    assert record.samples > 0
    assert record.place == 3, "its random numbers are not those of another node"
    server.forget(list(server.nodes))
    assert not server.nodes
