"""The environment of a study says what it was run with, and not where."""

import platform
import re
import socket
from importlib import metadata
from pathlib import Path

import pytest

from experiments.environment import environment, read_environment, write_environment
from experiments.plan import StudyError


def test_the_environment_has_date_commit_processor_and_versions_and_no_host_name() -> None:
    found = environment()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", found["date"])
    assert re.fullmatch(r"[0-9a-f]{12}(, with local changes)?", found.get("commit", "0" * 12))
    assert re.fullmatch(r".+, \d+ cores", found["processor"])
    assert found["Python"] == platform.python_version()
    assert {name: found[name] for name in ("fedcomp", "numpy")} == {
        name: metadata.version(name) for name in ("fedcomp", "numpy")
    }
    assert socket.gethostname() not in " ".join(found.values())


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    assert read_environment(tmp_path) == {}
    write_environment(tmp_path, environment())
    assert read_environment(tmp_path)["Python"] == platform.python_version()


@pytest.mark.parametrize("text", ["{", "[]", '{"cores": 2}', "\xff"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "environment.json").write_text(text, encoding="latin-1")
    with pytest.raises(StudyError, match=r"environment\.json"):
        read_environment(tmp_path)
