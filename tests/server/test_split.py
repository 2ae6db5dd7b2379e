"""Split learning as a run of the app, in this process: it learns and reports, and refuses what does not fit."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

import fedcomp
from clients.app import app as client_app
from deploy.monitor.snapshot import read_run
from fedcomp.flower import LocalGrid
from fedcomp.split import SplitSettings
from server.app import app as server_app
from server.settings import Settings, SettingsError
from server.split import check_split

Config = dict[str, Any]
NODES = 3
SETTINGS = SplitSettings(forward=fedcomp.cgx(bits=2), batch_size=32, steps=8, learning_rate=0.1, momentum=0.5)


def run(config: Config, grid: type[LocalGrid] = LocalGrid) -> None:
    server_app(grid(client_app, NODES, config), Context(1, 0, {}, RecordDict(), config))


@pytest.fixture
def split(config: Config, tmp_path: Path) -> Config:
    """A run of two rounds of split learning."""
    return config | {
        "split": str(SETTINGS),
        "split-layer": "2",
        "model": "cnn",
        "partition": "iid()",
        "num-rounds": 3,
        "min-nodes": NODES,
        "node-timeout": 0.0,
        "runs-dir": str(tmp_path / "runs"),
    }


def test_a_run_learns_and_its_rounds_add_up_to_its_summary(split: Config, tmp_path: Path) -> None:
    run(split)
    folder = tmp_path / "runs" / "digits-001"
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["accuracy"] < 0.3 < 0.6 < summary["accuracy"] == lines[-1]["accuracy"]
    for key in ("uplink_bytes", "downlink_bytes", "dense_uplink_bytes", "dense_downlink_bytes"):
        assert sum(line[key] for line in lines) == summary[key] > 0
    assert summary["ratio"] > 2
    assert summary["settings"] == split
    assert {lines[0]["uplink"], lines[1]["uplink"]} == {"", "cgx(bits=2)"}
    with np.load(folder / "model.npz") as model:
        assert all(np.isfinite(model[name]).all() for name in model.files)
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_a_partition_is_checked_for_the_partitions_of_the_nodes(split: Config) -> None:
    config = split | {"num-rounds": 1, "partition": "sizes([90, 80, 70, 60])"}
    grid = LocalGrid(client_app, NODES, config, lambda _: {"num-partitions": 4})
    server_app(grid, Context(1, 0, {}, RecordDict(), config))
    with pytest.raises(SettingsError, match="4 clients"):
        server_app(grid, Context(1, 0, {}, RecordDict(), config | {"partition": "sizes([90, 80, 70])"}))


def test_a_run_says_in_its_folder_how_it_ended(split: Config, tmp_path: Path) -> None:
    class Dying(LocalGrid):
        """Ends in the second round, in the way that is next."""

        ends: BaseException = ConnectionError("the SuperLink\nis gone")

        def send_and_receive(self, messages: Iterable[Message], **options: Any) -> Iterable[Message]:
            asked = list(messages)
            if asked[0].metadata.group_id == "2":
                raise self.ends
            return super().send_and_receive(asked, **options)

    def state(name: str) -> tuple[object, ...]:
        seen = read_run(tmp_path / "runs" / name)
        return seen.state, seen.reason, seen.num_rounds, seen.version

    run(split | {"run-name": "done", "num-rounds": 1})
    assert state("done") == ("completed", "", 1, None)
    with pytest.raises(SettingsError):
        run(split | {"run-name": "failed"}, Dying)
    assert state("failed") == ("failed", "the SuperLink is gone", 3, None)
    Dying.ends = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(split | {"run-name": "stopped"}, Dying)
    assert state("stopped") == ("stopped", "", 3, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "split(forward=stc())"}, "split is .*remembers what it leaves out"),
        ({"split": "split(step=3)"}, "split has no setting 'step'; its settings are: forward"),
        ({"split": "cut()"}, "unknown way to train 'cut'"),
        ({"split-layer": "nine"}, "split-layer is 'nine'; the model has no layer 'nine'"),
        ({"split-layer": ""}, "split-layer is ''"),
        ({"split": ""}, "split-layer is '2', and split is empty"),
        ({"strategy": "fedadam"}, "strategy is 'fedadam', and strategy has no place in split learning"),
        ({"uplink": "stc"}, "uplink is 'stc'"),
        ({"mode": "async(buffer=2)"}, "mode is 'async"),
        ({"learning-rate": 0.5}, "learning-rate is 0.5, and learning-rate is named in the text of split"),
        ({"fraction-train": 0.5}, "fraction-train is 0.5, and all nodes train"),
        ({"checkpoint-every": 1}, "checkpoint-every is 1"),
        ({"resume": True, "run-name": "old"}, "resume is True"),
        ({"training": "mixed_precision()"}, "training is 'mixed_precision"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence_before_anything_starts(
    split: Config, settings: Config, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        run(split | settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_the_defaults_of_the_app_fit_split_learning(config: Config) -> None:
    """`server.split` names the values of settings that nobody sets."""
    check_split(Settings.from_config(config))
