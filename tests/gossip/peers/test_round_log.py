"""The files that a node writes for people: sums over the run, who is absent, and what a killed node finds."""

import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.monitor.snapshot import read_run
from fedcomp.gossip.peers.round_log import DIGEST, RUNNING, Amounts, RoundLog, RoundTraffic

SETTINGS = {"node": 0, "rounds": 9, DIGEST: "5", "settings": {"day": date(2026, 1, 2)}}


def records(folder: Path) -> RoundLog:
    log = RoundLog(folder, SETTINGS, [1, 2])
    log.begin()
    return log


def test_a_killed_node_continues_its_sums_and_drops_a_line_that_was_cut(tmp_path: Path) -> None:
    before = records(tmp_path)
    float32: Any = np.float32(0.25)  # is no float, and not of JSON
    before.append(
        before.row(1, {1: Amounts(uplink_bytes=5), 2: Amounts(uplink_bytes=7)}, [1, 2], 0.5, {"accuracy": float32})
    )
    before.append(before.row(2, {1: Amounts(uplink_bytes=10), 2: Amounts()}, [1], 0.5, {}))
    path = tmp_path / "rounds.jsonl"
    with path.open("a") as file:
        file.write('{"round": 3, "neigh')
    after = records(tmp_path)
    assert len(path.read_text().splitlines()) == 2
    after.append(after.row(3, {1: Amounts(downlink_bytes=1), 2: Amounts()}, [1], 0.5, {"accuracy": 0.5}))
    assert after.total == {1: Amounts(uplink_bytes=15, downlink_bytes=1), 2: Amounts(uplink_bytes=7)}
    after.write_status(RUNNING)
    status = json.loads((tmp_path / "nodes.json").read_text())
    assert [(row["node"], row["heard"], row["absent"]) for row in status["nodes"]] == [(1, 3, False), (2, 1, True)]
    seen = read_run(tmp_path)
    assert [row.round for row in seen.rounds] == [1, 2, 3]
    assert [row.traffic.uplink_bytes for row in seen.nodes] == [15, 7]


def test_results_that_are_no_numbers_are_null(tmp_path: Path) -> None:
    log = records(tmp_path)
    row = log.row(1, {1: Amounts(), 2: Amounts()}, [1], 0.5, {"accuracy": math.nan, "loss": -math.inf, "f1": 0.25})
    assert (row["accuracy"], row["loss"], row["f1"]) == (None, None, 0.25)
    log.append(row)
    assert read_run(tmp_path).rounds[0].accuracy is None


@pytest.mark.parametrize("name", ["round", "seconds", "used", "neighbors", "uplink_bytes", "uplink", "traffic"])
def test_a_result_with_the_name_of_another_entry_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'"):
        records(tmp_path).row(1, {1: Amounts(), 2: Amounts()}, [1], 0.5, {"accuracy": 0.5, name: 7.0})


def test_traffic_is_counted_by_neighbor_until_it_is_taken() -> None:
    traffic = RoundTraffic([1, 2], dense_bytes=400)
    traffic.count(1, uplink_bytes=3)
    traffic.count(1, uplink_bytes=4, downlink_bytes=5)
    traffic.count_model(2, "dense_uplink_bytes")
    assert traffic.take() == {
        1: Amounts(uplink_bytes=7, downlink_bytes=5),
        2: Amounts(dense_uplink_bytes=400),
    }
    assert traffic.take() == {1: Amounts(), 2: Amounts()}


@pytest.mark.parametrize("line", ["junk", "[]", "{}", '{"round": 1, "used": [1], "neighbors": {"a": {}}}', "3"])
def test_damaged_records_are_set_aside(tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    before = records(tmp_path)
    before.append(before.row(1, {1: Amounts(uplink_bytes=5), 2: Amounts()}, [1], 0.5, {}))
    path = tmp_path / "rounds.jsonl"
    whole = path.read_text() + line + "\n"
    path.write_text(whole)
    after = records(tmp_path)
    assert f"{path} is damaged" in caplog.text
    assert (tmp_path / "rounds.jsonl.damaged").read_text() == whole
    assert path.read_text() == ""
    assert after.total == {1: Amounts(), 2: Amounts()}


@pytest.mark.parametrize("other", [{DIGEST: "6"}, {"node": 3}])
def test_rounds_of_another_training_or_node_are_set_aside(
    tmp_path: Path, other: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = records(tmp_path)
    before.append(before.row(1, {1: Amounts(uplink_bytes=5), 2: Amounts()}, [1], 0.5, {}))
    path = tmp_path / "rounds.jsonl"
    lines = path.read_text()
    after = RoundLog(tmp_path, SETTINGS | other, [1, 2])
    assert f"{path} is of another training or node" in caplog.text
    assert (tmp_path / "rounds.jsonl.damaged").read_text() == lines
    assert path.read_text() == ""
    assert after.total == {1: Amounts(), 2: Amounts()}


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"rounds": 4}', None])
def test_rounds_of_an_unknown_training_are_continued(tmp_path: Path, text: str | None) -> None:
    before = records(tmp_path)
    before.append(before.row(1, {1: Amounts(uplink_bytes=5), 2: Amounts()}, [1], 0.5, {}))
    path = tmp_path / "settings.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert records(tmp_path).total == before.total


def test_only_the_user_of_the_node_reads_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    made = records(folder)
    made.append(made.row(1, {1: Amounts(), 2: Amounts()}, [1], 0.5, {}))
    made.write_status(RUNNING)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "rounds.jsonl": 0o600,
        "nodes.json": 0o600,
        "settings.json": 0o600,
    }
