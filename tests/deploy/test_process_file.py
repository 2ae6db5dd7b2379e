"""The record of a running federation: written, read back, and refused if it is foreign."""

import json
import os
from pathlib import Path

import pytest

from deploy.process_file import ProcessFile
from deploy.run_config import LaunchError

MARK = "ab" * 16 + "/"
LINK_ALONE = {"SuperLink": (10, 100.0, "/f/superlink.log")}
PROCESSES = {"SuperLink": (10, 100.0, "/f/superlink.log"), "SuperNode 0": (11, 101.0, "/f/node-0.log")}


def record(**changes: object) -> dict[str, object]:
    """The fields of a record of one node."""
    fields: dict[str, object] = {"mark": MARK, "address": "127.0.0.1:1", "health_address": "127.0.0.1:2"}
    return {**fields, "node_ids": ["7"], "processes": PROCESSES, **changes}


def test_a_record_is_read_back_unchanged(tmp_path: Path) -> None:
    written = ProcessFile.model_validate(record())
    written.write(tmp_path)
    found = ProcessFile.read(tmp_path)
    assert found is not None
    assert found.programs() == written.programs()
    assert [program.mark for program in found.programs()] == [f"{MARK}superlink/", f"{MARK}node-0/"]
    assert [path.name for path in tmp_path.iterdir()] == ["federation.json"]


def test_a_folder_without_a_federation_has_no_record(tmp_path: Path) -> None:
    assert ProcessFile.read(tmp_path) is None
    assert ProcessFile.read(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", json.dumps(record(more=1))]
    + [json.dumps(record(mark=mark)) for mark in ("", "/", 5, None, "ab" * 16)]
    + [json.dumps(record(processes=processes)) for processes in (LINK_ALONE, [*PROCESSES], None, 5)]
    + [json.dumps(record(node_ids=[], processes=None))]
    + [
        json.dumps(record(processes=dict.fromkeys(PROCESSES, entry)))
        for entry in ([1], ["x", 1, "log"], [-1, 1, "log"], 5, None)
    ],
)
def test_a_foreign_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "federation.json").write_text(text)
    with pytest.raises(LaunchError, match=r"federation\.json") as caught:
        ProcessFile.read(tmp_path)
    assert "http" not in str(caught.value)  # one sentence, and not the report of the library that found it


def test_another_process_with_the_same_id_is_not_the_federation(tmp_path: Path) -> None:
    mine = (os.getpid(), 1.0, str(tmp_path / "log"))  # this process has another time of start
    written = ProcessFile.model_validate(record(processes=dict.fromkeys(PROCESSES, mine)))
    assert not written.running()
    written.end()
