"""Whole runs of the app in this process, on a grid that calls the ClientApp directly."""

import itertools
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedMedian
from numpy.typing import NDArray

from clients.app import app as client_app
from clients.local import train
from fedcomp.data import load, read_card, write_own
from fedcomp.errors import DivergedError, NoUpdateError
from fedcomp.flower import LocalGrid, records
from fedcomp.flower.client.store import open_store
from fedcomp.training import admm, unpack
from server.app import app as server_app
from server.evaluate import Evaluator, build_evaluator
from server.fit import CARDS
from server.nodes import wait_for_nodes
from server.settings import SettingsError
from server.strategies import STRATEGIES
from tests.flower.superlink_grid import SuperLinkGrid

Config = dict[str, Any]
NODES = 5
SHORT = {
    "num-rounds": 4,
    "batch-size": 40,
    "min-nodes": NODES,
    "fraction-train": 0.4,
    "model": "logistic",
    "node-timeout": 0.0,
}


def run(config: Config, grid: LocalGrid | None = None) -> None:
    grid = grid or LocalGrid(client_app, NODES, config)
    server_app(grid, Context(1, 0, {}, RecordDict(), config))


@pytest.fixture
def drawn(config: Config, tmp_path: Path) -> Config:
    """A run of four rounds on five nodes."""
    return config | SHORT | {"runs-dir": str(tmp_path / "runs")}


@pytest.fixture
def short(drawn: Config, undrawn: None) -> Config:
    """The same run, with an empty picture."""
    return drawn


def test_over_a_superlink_no_round_waits_three_seconds_for_its_replies(short: Config) -> None:
    run(short, SuperLinkGrid(client_app, NODES, short))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_a_run_writes_its_rounds_which_add_up_to_its_summary_a_figure_and_the_last_evaluated_model(
    drawn: Config, tmp_path: Path
) -> None:
    config = drawn | {"fraction-evaluate": 0.4}
    run(config)
    folder = tmp_path / "runs" / "digits-001"
    files = {"settings.json", "rounds.jsonl", "nodes.json", "summary.json", "accuracy.png", "model.npz"}
    assert {path.name for path in folder.iterdir()} == files
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [line["round"] for line in lines(folder)] == [0, 1, 2, 3, 4]
    summary = json.loads((folder / "summary.json").read_text())
    last, named = lines(folder)[-1], config | {"run-name": "digits-001"}
    assert (lines(folder)[0]["uplink"], lines(folder)[0]["downlink"]) == ("auto()", "auto()"), "round 0 sends nothing"
    assert (summary["rounds"], summary["accuracy"], summary["settings"]) == (4, last["accuracy"], named)
    for key in ("uplink_bytes", "downlink_bytes", "catch_up_bytes", "dense_uplink_bytes", "dense_downlink_bytes"):
        assert sum(line[key] for line in lines(folder)) == summary[key] > 0
    assert summary["ratio"] > 1
    evaluator = build_evaluator("logistic", load(read_card("digits", CARDS)), 0, "cpu")
    with np.load(folder / "model.npz") as archive:
        arrays = ArrayRecord({name: Array(archive[name]) for name in archive.files})
    assert evaluator(arrays) == (last["loss"], last["accuracy"])


def test_a_model_that_is_used_with_few_bits_is_evaluated_so_and_written_in_them(short: Config, tmp_path: Path) -> None:
    config = short | {"model": "mlp", "training": "quantized('ternary')", "fraction-evaluate": 1.0, "seed": 3}
    run(config)
    folder = tmp_path / "runs" / "digits-001"
    with np.load(folder / "inference.npz") as archive:
        used = unpack(archive)
    with np.load(folder / "model.npz") as archive:
        latent = {name: archive[name] for name in archive.files}
    assert {name: len(set(weight.flatten().tolist())) for name, weight in used.items() if weight.dim() > 1} == {
        "1.weight": 3,
        "3.weight": 3,
    }
    assert all(len(np.unique(latent[name])) > 1000 for name in ("1.weight", "3.weight"))
    # Two bits for each weight, and 32 for each of the 266 biases; .npz names and aligns the arrays.
    assert (
        (folder / "inference.npz").stat().st_size
        < 18_944 / 4 + 4 * 266 + 4096
        < (folder / "model.npz").stat().st_size / 7
    )
    last = lines(folder)[-1]
    evaluator = build_evaluator("mlp", load(read_card("digits", CARDS)), 3, "cpu")
    arrays = ArrayRecord({name: Array(weight.numpy()) for name, weight in used.items()})
    assert evaluator(arrays) == (last["loss"], last["accuracy"])
    assert evaluator(ArrayRecord({name: Array(weight) for name, weight in latent.items()})) != (
        last["loss"],
        last["accuracy"],
    )


SPARSE = {
    "model": "mlp",
    "training": "rigl(0.1)",
    "strategy": "rigl(interval=2, fraction=0.5, until=8)",
    "num-rounds": 6,
}


def masks(model: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.uint8]]:
    return {name: np.unpackbits(mask) for name, mask in model.items() if name.endswith("_mask")}


def test_a_sparse_model_moves_its_weights_and_its_updates_carry_no_positions(short: Config, tmp_path: Path) -> None:
    for name, settings in (("fixed", {"strategy": "fedavg()"}), ("moved", {})):
        run(short | SPARSE | {"uplink": "dense()", "downlink": "dense()", "run-name": name} | settings)
    fixed, moved = (weights(tmp_path / "runs", name) for name in ("fixed", "moved"))
    counts = [{name: int(mask.sum()) for name, mask in masks(model).items()} for model in (fixed, moved)]
    assert counts[0] == counts[1]
    assert any(not np.array_equal(mask, masks(moved)[name]) for name, mask in masks(fixed).items())
    for model in (fixed, moved):
        for name, mask in masks(model).items():
            weight = model[name.removesuffix("_mask")]
            assert not weight.ravel()[mask[: weight.size] == 0].any()
    # Four bytes for each weight inside and each of the 266 biases; a reply's frame has some fifty bytes beside them.
    inside = sum(counts[0].values()) + 266
    for name in ("fixed", "moved"):
        for line in lines(tmp_path / "runs" / name)[1:]:
            reports = name == "moved" and line["round"] in (2, 4, 6)  # 0.3 gradients for each weight, with positions
            assert 2 * 4 * inside < line["uplink_bytes"] < 2 * (4 * inside + 1500) + reports * 2 * 1.5 * inside
    assert lines(tmp_path / "runs" / "moved")[-1]["accuracy"] > 0.3


def test_a_sparse_run_in_two_halves_ends_in_the_bits_of_a_whole_one(short: Config, tmp_path: Path) -> None:
    config = short | SPARSE | {"uplink": "stc(density=0.1)", "downlink": "stc(density=0.1)", "checkpoint-every": 1}
    run(config | {"run-name": "whole"})
    grid = LocalGrid(client_app, NODES, config)
    run(config | {"run-name": "halves", "num-rounds": 3}, grid)
    run(config | {"run-name": "halves", "resume": True}, grid)
    whole, halves = (weights(tmp_path / "runs", name) for name in ("whole", "halves"))
    assert all(np.array_equal(whole[name], halves[name]) for name in whole)


def test_every_third_round_and_the_last_are_evaluated(short: Config, tmp_path: Path) -> None:
    run(short | {"evaluate-every": 3})
    evaluated = [line["round"] for line in lines(tmp_path / "runs" / "digits-001") if line["accuracy"] is not None]
    assert evaluated == [0, 3, 4]


def test_what_nodes_evaluated_is_in_the_rounds_the_summary_and_on_the_screen(
    short: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(short | {"fraction-evaluate": 0.4, "run-name": "shown"})
    folder = tmp_path / "runs" / "shown"
    first, *others = lines(folder)
    assert "eval_accuracy" not in first
    summary = json.loads((folder / "summary.json").read_text())
    assert all(0 < line["eval_accuracy"] <= 1 and line["eval_loss"] > 0 for line in others)
    assert (summary["eval_accuracy"], summary["eval_loss"]) == (others[-1]["eval_accuracy"], others[-1]["eval_loss"])
    assert f"  nodes {others[0]['eval_accuracy']:7.1%}  up" in capsys.readouterr().out
    run(short | {"run-name": "not"})
    assert not any("eval_accuracy" in line or "eval_loss" in line for line in lines(tmp_path / "runs" / "not"))
    assert "eval_loss" not in json.loads((tmp_path / "runs" / "not" / "summary.json").read_text())
    assert "%  nodes" not in capsys.readouterr().out


def test_a_loss_on_the_nodes_that_is_no_number_is_left_out(
    short: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.app.evaluate_model", lambda *_: (float("nan"), 0.5))
    run(short | {"fraction-evaluate": 0.4, "num-rounds": 1})
    last = lines(tmp_path / "runs" / "digits-001")[-1]
    assert last["eval_accuracy"] == 0.5
    assert "eval_loss" not in last


def test_with_sampling_decay_fewer_nodes_train_in_each_round(short: Config, tmp_path: Path) -> None:
    run(short | {"fraction-train": 1.0, "sampling-decay": 0.5})
    dense = [line["dense_uplink_bytes"] for line in lines(tmp_path / "runs" / "digits-001")[1:]]
    # 5 exp(-0.5 t): 5, 3.03, 1.8 and 1.1, of which the last two are two
    assert [size // (dense[0] // 5) for size in dense] == [5, 4, 2, 2]


def test_a_second_run_does_not_touch_the_first(short: Config, tmp_path: Path) -> None:
    short |= {"num-rounds": 1}
    run(short)
    before = (tmp_path / "runs" / "digits-001" / "summary.json").read_bytes()
    run(short | {"seed": 1})
    assert (tmp_path / "runs" / "digits-001" / "summary.json").read_bytes() == before
    assert (tmp_path / "runs" / "digits-002" / "summary.json").exists()


def test_an_interrupted_run_resumes_with_the_same_results(short: Config, tmp_path: Path) -> None:
    short |= {"uplink": "stc(density=0.02)", "downlink": "stc(density=0.02)"}  # auto() depends on the planned end
    whole, halves = short | {"run-name": "whole"}, short | {"run-name": "halves", "checkpoint-every": 1}
    run(whole)
    grid = LocalGrid(client_app, NODES, halves)
    run(halves | {"num-rounds": 2}, grid)
    run(halves | {"resume": True}, grid)
    settings = json.loads((tmp_path / "runs" / "halves" / "settings.json").read_text())
    assert settings == halves | {"resume": True, "num-partitions": NODES}, "and not with 2 rounds"
    learned = [
        [
            (line["round"], line["accuracy"], line["loss"], line["uplink_bytes"])
            for line in lines(tmp_path / "runs" / name)
        ]
        for name in ("whole", "halves")
    ]
    assert learned[0] == learned[1]
    summaries = [json.loads((tmp_path / "runs" / name / "summary.json").read_text()) for name in ("whole", "halves")]
    assert summaries[0]["uplink_bytes"] == summaries[1]["uplink_bytes"]


class KilledError(BaseException):
    """The ServerApp ends here and now."""


class Killing(LocalGrid):
    """A grid whose server dies with the replies to the `last` batch of messages under way: its nodes have worked already."""

    def __init__(self, config: Config, last: int) -> None:
        super().__init__(client_app, NODES, config)
        self.left = last

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = super().send_and_receive(messages, timeout=timeout)
        self.left -= 1
        if self.left == 0:
            raise KilledError
        return replies


@pytest.mark.parametrize("last", [2, 3, pytest.param(4, marks=pytest.mark.nightly), 9])
def test_a_server_killed_at_work_resumes_without_losing_a_round(last: int, short: Config, tmp_path: Path) -> None:
    config = short | {"run-name": "killed", "checkpoint-every": 1, "fraction-evaluate": 1.0, "fraction-train": 1.0}
    grid = Killing(config, last)
    with pytest.raises(KilledError):
        run(config, grid)
    with (tmp_path / "runs" / "killed" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 1')  # what was being written
    run(config | {"resume": True}, grid)
    assert [line["round"] for line in lines(tmp_path / "runs" / "killed")] == [0, 1, 2, 3, 4]
    assert not any(line["refused"] for line in lines(tmp_path / "runs" / "killed"))
    for context in grid.contexts.values():
        with open_store(context) as home:
            replica = home.load(0).subscriber.replica
        assert replica is not None
        assert replica.version == 4


def test_a_run_resumes_with_as_many_partitions_as_before(short: Config, tmp_path: Path) -> None:
    config = short | {"run-name": "mine", "checkpoint-every": 1, "num-rounds": 2, "partition": "iid()"}
    grid = LocalGrid(client_app, NODES, config)

    def resume(num_partitions: int, last: int) -> None:
        for context in grid.contexts.values():
            context.node_config["num-partitions"] = num_partitions
        run(config | {"resume": True, "num-rounds": last}, grid)

    run(config, grid)
    before = lines(tmp_path / "runs" / "mine")
    with pytest.raises(SettingsError, match="num-partitions of the nodes is 6; 5, as run 'mine'") as caught:
        resume(NODES + 1, 3)
    assert "\n" not in str(caught.value)
    assert lines(tmp_path / "runs" / "mine") == before
    resume(NODES, 3)
    path = tmp_path / "runs" / "mine" / "settings.json"
    settings = json.loads(path.read_text())
    assert settings.pop("num-partitions") == NODES
    path.write_text(json.dumps(settings))  # as a version without the number wrote it
    resume(NODES + 1, 4)
    assert json.loads(path.read_text())["num-partitions"] == NODES + 1


def test_a_run_on_samples_of_the_nodes_resumes_with_any_number_of_them(short: Config, tmp_path: Path) -> None:
    card, train = read_card("digits", CARDS), load(read_card("digits", CARDS)).train
    for node in range(1, NODES + 1):
        write_own(tmp_path / f"{node}", card, train.x[node * 90 : node * 90 + 90], train.y[node * 90 : node * 90 + 90])
    config = short | {"partition": "own()", "run-name": "own", "checkpoint-every": 1, "num-rounds": 1, "min-nodes": 2}
    for number, nodes in ((1, NODES - 1), (2, NODES)):
        config |= {"num-rounds": number, "resume": number > 1}
        run(config, LocalGrid(client_app, nodes, config, lambda node: {"data-dir": str(tmp_path / f"{node}")}))
    assert "num-partitions" not in json.loads((tmp_path / "runs" / "own" / "settings.json").read_text())


def test_resuming_a_finished_run_needs_more_rounds(short: Config) -> None:
    named = short | {"run-name": "done", "checkpoint-every": 2, "num-rounds": 2}
    grid = LocalGrid(client_app, NODES, named)
    run(named, grid)
    with pytest.raises(SettingsError, match=r"num-rounds is 2, .*'done' .*2; "):
        run(named | {"resume": True}, grid)


def test_a_checkpoint_that_cannot_be_opened_is_named(
    short: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = short | {"run-name": "shut", "checkpoint-every": 1, "num-rounds": 1}
    grid = LocalGrid(client_app, NODES, named)
    run(named, grid)
    opened = Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "checkpoint":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **kwargs)

    before = lines(tmp_path / "runs" / "shut")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"Permission denied: '.*checkpoint'"):
        run(named | {"resume": True, "num-rounds": 9}, grid)
    assert lines(tmp_path / "runs" / "shut") == before


def test_a_damaged_checkpoint_is_refused(short: Config, tmp_path: Path) -> None:
    named = short | {"run-name": "hurt", "checkpoint-every": 1, "num-rounds": 1}
    grid = LocalGrid(client_app, NODES, named)
    run(named, grid)
    checkpoint = tmp_path / "runs" / "hurt" / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(SettingsError):
        run(named | {"resume": True, "num-rounds": 9}, grid)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num-rounds": -1}, "num-rounds is -1"),
        ({"dataset": "imagenet"}, "'imagenet'"),
        ({"dataset": "mnist", "data-dir": "/nowhere"}, "/nowhere"),
        ({"model": "vgg11s"}, "vgg11s .*32x32"),
        ({"partition": "classes(11)"}, "10"),
        ({"min-nodes": NODES + 1}, "5 nodes .* 0 s; min-nodes is 6"),
    ],
)
def test_a_run_that_cannot_start_is_refused_without_a_folder(
    short: Config, tmp_path: Path, changes: Config, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        run(short | changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_partition_is_checked_for_the_partitions_of_the_nodes_and_not_for_those_that_are_connected(
    short: Config,
) -> None:
    config = short | {"num-rounds": 1, "partition": "sizes([9, 8, 7, 6, 5, 4, 3, 2])"}
    grid = LocalGrid(client_app, NODES, config, lambda _: {"num-partitions": 8})
    run(config, grid)
    with pytest.raises(SettingsError, match="8 clients"):
        run(config | {"partition": "sizes([9, 8, 7, 6, 5])"}, grid)


def test_nodes_learn_from_their_own_samples_although_one_has_none(
    short: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card, nodes = read_card("digits", CARDS), tmp_path / "nodes"
    train = load(card).train
    for node in range(1, NODES):  # the last has none
        rows = slice(250 * node, 250 * node + 250)
        write_own(nodes / f"{node}", card, train.x[rows], train.y[rows])
    config = short | {"partition": "own()", "fraction-train": 1.0}
    with caplog.at_level("WARNING", "flwr"):
        run(config, LocalGrid(client_app, NODES, config, lambda node: {"data-dir": str(nodes / str(node))}))
    folder = tmp_path / "runs" / "digits-001"
    assert lines(folder)[-1]["accuracy"] > lines(folder)[0]["accuracy"] + 0.3
    warnings = [record.getMessage() for record in caplog.records if "cannot take part" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("node 5 cannot take part; it says: no dataset card 'digits' in ")


def test_simulated_nodes_have_no_samples_of_their_own(short: Config, tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"no node can take part; node 1 says: partition is 'own\(\)', and node config"
    ):
        run(short | {"partition": "own()", "data-dir": str(tmp_path)})
    assert not (tmp_path / "runs").exists()


def test_a_run_ends_in_the_first_round_if_all_nodes_fail(short: Config) -> None:
    class Silent(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            return [reply for reply in replies if not reply.metadata.message_type.startswith("train")]

    with pytest.raises(RuntimeError, match="no node sent an update in round 1"):
        run(short, Silent(client_app, NODES, short))


def test_connected_nodes_need_no_waiting() -> None:
    assert wait_for_nodes(LocalGrid(client_app, 3), 2, timeout_s=0.0) == 3


@pytest.mark.sample(6)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_runs_compressed(short: Config, tmp_path: Path, strategy: str) -> None:
    uplink = "ef21(density=0.02)" if strategy == "ef21" else "stc(density=0.02)"
    whole = {"num-rounds": 2, "fraction-train": 1.0, "fraction-evaluate": 1.0}
    training = "rigl(0.5)" if strategy == "rigl" else ""
    run(short | whole | {"strategy": strategy, "uplink": uplink, "training": training})
    assert all(line["uplink_bytes"] > 0 for line in lines(tmp_path / "runs" / "digits-001")[1:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"uplink": "ef21()"}, r"ef21\(density=0\.01\) .*FedAvg"),
        ({"strategy": "ef21"}, "EF21"),
        ({"downlink": "dgc()"}, r"dgc\(.* downlink"),
        ({"uplink": "topk(density=7)"}, r"uplink is 'topk\(density=7\)'; density is 7"),
        ({"uplink": "qsgd(bits=4)"}, "'bits'; .*levels, norm, bucket"),
        (
            {"strategy": "krum(num_malicious_nodes=50)"},
            r"strategy is 'krum.*103 updates .*, 2 of 5 nodes train; .*min-nodes",
        ),
        ({"strategy": "bulyan(num_malicious_nodes=3)", "fraction-train": 1.0}, "15 updates .*, 5 of 5 nodes"),
        ({"strategy": "fedtrimmedavg(beta=0.1)", "fraction-train": 1.0}, "10 updates .*, 5 of 5 nodes"),
        ({"strategy": "fedmedian"}, "3 updates .*, 2 of 5 nodes"),
        ({"device": "cuda:99"}, "no node can take part; node 1 says: device is 'cuda:99'; this node"),
        ({"device": "cuda:01"}, "device is 'cuda:01'; auto, cpu, cuda, cuda:<number> or mps is needed"),
        ({"training": "fedprox(mu=-1)"}, r"training is 'fedprox\(mu=-1\)'; mu is -1"),
        ({"learning-rate-schedule": "linear"}, "learning-rate-schedule is 'linear'; unknown"),
        ({"training": "batch_augmentation(2, shift=8)"}, r"node 1 says: training is 'batch_.*'; shift is 8"),
        ({"training": "fedprox(1)", "strategy": "fedprox(proximal_mu=1)"}, "adds fedprox already"),
        ({"strategy": "rigl(interval=2)"}, r"moves the weights of sparse models; rigl\(density=0.1\) makes one"),
        ({"strategy": "rigl(interval=0)", "training": "rigl()"}, "interval is 0"),
        ({"training": "rigl()", "uplink": "powersgd()"}, "the model has a mask, and powersgd"),
        ({"training": "rigl(1.0)"}, r"training is 'rigl\(1\.0\)'; density is 1; .* no weight matrix of this model"),
        (
            {"training": "zerofl()"},
            r"training is 'zerofl\(\)'; .* layers after the first one sparse; the model has none",
        ),
        (
            {"training": "mixed_precision('float16')", "device": "cpu"},
            r"node 1 says: training is .mixed_.*; .* needs a GPU, and the model is on the CPU",
        ),
    ],
)
def test_impossible_methods_and_training_are_refused_before_a_folder_is_made(
    short: Config, tmp_path: Path, settings: Config, message: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^[^\n]*{message}[^\n]*$"):
        run(short | settings)
    assert not (tmp_path / "runs").exists()


def test_dense_links_compress_nothing(short: Config, tmp_path: Path) -> None:
    run(short | {"uplink": "dense()", "downlink": "dense()"})
    last = json.loads((tmp_path / "runs" / "digits-001" / "rounds.jsonl").read_text().splitlines()[-1])
    nodes = last["dense_uplink_bytes"] // (4 * 650)
    assert nodes > 1
    assert all(last[key] > nodes * 4 * 650 for key in ("uplink_bytes", "downlink_bytes")), "every float of every model"
    summary = json.loads((tmp_path / "runs" / "digits-001" / "summary.json").read_text())
    first = json.loads((tmp_path / "runs" / "digits-001" / "rounds.jsonl").read_text().splitlines()[1])
    assert 0 < first["first_model_bytes"] < 0.2 * first["dense_downlink_bytes"]
    assert summary["first_model_bytes"] >= first["first_model_bytes"]
    assert first["refused"] == 0


def test_a_run_that_diverges_writes_its_results_and_ends_with_an_error(
    short: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "__call__", lambda self, arrays: (float("nan"), 0.1))
    with pytest.raises(DivergedError, match="the last loss is no number"):
        run(short | {"run-name": "wild"})
    summary = json.loads((tmp_path / "runs" / "wild" / "summary.json").read_text())
    assert (summary["rounds"], summary["loss"]) == (4, None)


def test_a_last_round_that_is_not_evaluated_is_no_divergence(short: Config, tmp_path: Path) -> None:
    run(short | {"run-name": "seldom", "num-rounds": 3, "evaluate-every": 3, "checkpoint-every": 1})
    folder = tmp_path / "runs" / "seldom"
    text = "".join(
        json.dumps(json.loads(line) | {"loss": None, "accuracy": None}) + "\n"
        if json.loads(line)["round"] == 3
        else line + "\n"
        for line in (folder / "rounds.jsonl").read_text().splitlines()
    )
    (folder / "rounds.jsonl").write_text(text)
    (folder / "summary.json").unlink()
    run(short | {"run-name": "seldom", "num-rounds": 3, "evaluate-every": 3, "checkpoint-every": 1, "resume": True})


def test_a_run_in_which_no_update_can_be_used_ends_with_an_error(short: Config, tmp_path: Path) -> None:
    class Cutting(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            for reply in super().send_and_receive(messages, timeout=timeout):
                found = records.packed(reply.content) if reply.has_content() else None
                if found is not None:
                    reply.content[found[0]] = records.pack(found[1][:-1])
                yield reply

    with pytest.raises(NoUpdateError, match="the model is untrained: no update could be used"):
        run(short | {"run-name": "cut"}, Cutting(client_app, NODES, short))
    assert [line["refused"] for line in lines(tmp_path / "runs" / "cut")] == [0, 2, 2, 2, 2]


def test_a_round_that_fails_is_recorded(short: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FedMedian.aggregate_train

    def fail(self: FedMedian, server_round: int, replies: Iterable[Message]) -> Any:
        if server_round == 2:
            raise RuntimeError("a bug")
        return whole(self, server_round, replies)

    monkeypatch.setattr(FedMedian, "aggregate_train", fail)
    run(short | {"run-name": "stumbles", "strategy": "fedmedian", "fraction-train": 1.0})
    assert [line["no_result"] for line in lines(tmp_path / "runs" / "stumbles")] == [False, False, True, False, False]


@pytest.mark.parametrize("bound", [{"clip-norm": 1e-6}, {"clip-median": 1e-6}])
def test_the_bounds_of_updates_reach_the_strategy(short: Config, tmp_path: Path, bound: Config) -> None:
    run(short | bound | {"run-name": "still", "downlink": "dense()"})
    accuracy = [line["accuracy"] for line in lines(tmp_path / "runs" / "still")]
    assert len(set(accuracy)) == 1, "the updates are too short to change a prediction"


def weights(runs: Path, name: str) -> dict[str, NDArray[Any]]:
    with np.load(runs / name / "model.npz") as model:
        return dict(model)


def durable_grid(config: Config, places: Path) -> LocalGrid:
    """Return a grid of nodes that keep their state in their folders in `places`."""
    return LocalGrid(client_app, NODES, config, node_config=lambda node: {"state-dir": str(places / str(node))})


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_kept_momentum_changes_the_training_and_survives_a_restart_of_nodes_and_server(
    short: Config, tmp_path: Path, optimizer: str, rate: float
) -> None:
    """Each node keeps its optimizer's state in its state-dir: a run in two halves ends in the bits of a whole one."""
    shared = {
        "optimizer": optimizer,
        "learning-rate": rate,
        "momentum": 0.9,
        "num-rounds": 3,
        "fraction-train": 1.0,
        "checkpoint-every": 1,
        "uplink": "stc(0.1)",
        "downlink": "stc(0.1)",
    }
    runs = tmp_path / "runs"
    for name, setting in (("reset", "reset"), ("whole", "keep"), ("halves", "keep")):
        config = short | shared | {"client-momentum": setting, "run-name": name}
        if name == "halves":
            half = config | {"num-rounds": 2}
            run(half, durable_grid(half, tmp_path / f"nodes-{name}"))
            config |= {"resume": True}
        run(config, durable_grid(config, tmp_path / f"nodes-{name}"))
    reset, whole, halves = (weights(runs, name) for name in ("reset", "whole", "halves"))
    for name, array in whole.items():
        np.testing.assert_array_equal(halves[name], array)
        assert not np.array_equal(reset[name], array)


def test_the_state_of_plug_ins_survives_a_restart_of_nodes_and_server(short: Config, tmp_path: Path) -> None:
    """A run in two halves ends in the bits of a whole one, unless the nodes lose what they kept."""
    links = {"uplink": "stc(0.1)", "downlink": "stc(0.1)"}  # by default, the number of rounds chooses them
    training = {"training": "admm('ternary', rho=0.1, interval=2)", "fraction-train": 1.0, "checkpoint-every": 1}
    runs = tmp_path / "runs"
    for name in ("whole", "halves", "lost"):
        config = short | links | training | {"run-name": name}
        if name != "whole":
            half = config | {"num-rounds": 2}
            run(half, durable_grid(half, tmp_path / f"nodes-{name}"))
            config |= {"resume": True}
        run(config, durable_grid(config, tmp_path / ("nodes-new" if name == "lost" else f"nodes-{name}")))
    whole, halves, lost = (weights(runs, name)["1.weight"] for name in ("whole", "halves", "lost"))
    np.testing.assert_array_equal(halves, whole)
    assert not np.array_equal(lost, whole)


def test_a_run_resumes_with_other_plug_ins_and_nodes_leave_the_old_state_out(
    short: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    before = {"training": "admm('ternary')", "client-momentum": "keep", "momentum": 0.9, "checkpoint-every": 1}
    config = short | before | {"fraction-train": 1.0, "num-rounds": 2, "run-name": "changed"}
    run(config, durable_grid(config, tmp_path / "nodes"))
    changed = config | {"training": "fedprox(0.1)", "client-momentum": "reset", "num-rounds": 4, "resume": True}
    with caplog.at_level("INFO", logger="flwr"):
        run(changed, durable_grid(changed, tmp_path / "nodes"))
    left_out = [line for line in caplog.messages if "is left out" in line]
    assert left_out == [f"the state of {admm('ternary')} and momentum is left out: this run does not use it"] * NODES
    assert [line["round"] for line in lines(tmp_path / "runs" / "changed")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "after"), [("", "rigl(0.1)"), ("rigl(0.1)", "fedprox(1)"), ("rigl(0.1)", "rigl(0.2)")]
)
def test_plug_ins_that_prepare_the_model_stay_the_same_when_a_run_resumes(
    short: Config, tmp_path: Path, before: str, after: str
) -> None:
    config = short | {"model": "mlp", "training": before, "num-rounds": 1, "checkpoint-every": 1, "run-name": "mine"}
    run(config)
    with pytest.raises(SettingsError, match=rf"^training is '{re.escape(after)}'; .* needed to resume$"):
        run(config | {"training": after, "num-rounds": 2, "resume": True})
    assert (tmp_path / "runs" / "mine" / "summary.json").exists(), "nothing was removed"
    run(
        config | {"training": f"{before} + fedprox(0.1)" if before else "fedprox(0.1)", "num-rounds": 2, "resume": True}
    )


def test_plug_ins_and_schedules_change_the_training(short: Config, tmp_path: Path) -> None:
    short |= {"num-rounds": 2}
    settings = ("", "fedprox(mu=5)", "batch_augmentation(2)", "mixed_precision()")
    seen = []
    for number, text in enumerate(settings):
        run(short | {"training": text, "run-name": f"plug-in-{number}"})
        seen.append(weights(tmp_path / "runs", f"plug-in-{number}"))
    run(short | {"learning-rate-schedule": "exponential(0.01)", "run-name": "schedule"})
    seen.append(weights(tmp_path / "runs", "schedule"))
    flat = [np.concatenate([array.ravel() for array in each.values()]) for each in seen]
    assert all(not np.array_equal(one, other) for one, other in itertools.combinations(flat, 2))


def test_plug_ins_draw_other_numbers_in_each_round_and_on_each_node(
    short: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def recorded(*arguments: Any, seed: int, **others: Any) -> Any:
        seeds.append(seed)
        return train(*arguments, seed=seed, **others)

    monkeypatch.setattr("clients.app.train_locally", recorded)
    run(short)
    assert len(seeds) == len(set(seeds)) == 4 * 2


def test_fedprox_from_the_server_and_as_a_plug_in_are_the_same(short: Config, tmp_path: Path) -> None:
    for name, settings in (
        ("server", {"strategy": "fedprox(proximal_mu=0.5)"}),
        ("node", {"training": "fedprox(0.5)"}),
    ):
        run(short | settings | {"run-name": name})
    server, node = (weights(tmp_path / "runs", name) for name in ("server", "node"))
    for name, array in server.items():
        np.testing.assert_array_equal(node[name], array)
