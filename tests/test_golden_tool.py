"""`python -m tests.golden` writes a golden file once, and never again."""

from pathlib import Path

import pytest

from tests.golden.__main__ import main
from tests.golden.method_file import FOLDER, MethodFile


def test_the_file_of_a_method_is_the_one_in_git(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stc(density=0.02)", "--folder", str(tmp_path)]) == 0
    content = (tmp_path / "stc.golden").read_text()
    assert content == (FOLDER / "stc.golden").read_text()
    assert MethodFile.parse(content).digest in capsys.readouterr().out


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "topk.golden").write_text("reviewed")
    (tmp_path / "new.frame").write_text("reviewed")
    assert main(["topk", "--folder", str(tmp_path)]) == 1
    assert main(["new.frame", "--bytes", __file__, "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("File exists") == 2
    assert (tmp_path / "topk.golden").read_text() == (tmp_path / "new.frame").read_text() == "reviewed"


def test_bytes_are_copied_under_the_name_of_a_golden_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new.frame", "--bytes", __file__, "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "new.frame").read_bytes() == Path(__file__).read_bytes()
    for name in ("../new.frame", "new.txt"):
        assert main([name, "--bytes", __file__, "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("is no name of a golden file") == 2


def test_an_unknown_method_writes_nothing(tmp_path: Path) -> None:
    assert main(["gzip()", "--folder", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
