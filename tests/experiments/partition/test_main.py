"""The command shows how partitions spread the data."""

from pathlib import Path

import pytest

from experiments.partition.__main__ import main


def run(*arguments: str) -> int:
    """Return the exit code of the command."""
    return main(list(arguments))


def test_numbers_maps_and_a_figure_of_partitions_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures" / "partition.png"
    assert run("--partition", "iid()", "classes(1) + noise(0.1)", "--clients", "20", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "digits, 20 clients, seed 0" in printed
    assert "classes(1) +" in printed
    assert "0.87" in printed  # the Jensen-Shannon distance of one class among ten, nearly even
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dataset", "mnits"], "no dataset card 'mnits' in .*; there are: .*mnist"),
        (["--partition", "even()"], "unknown partition scheme 'even'; there are: .*iid"),
        (["--partition", "iid()", "iid() + blur(1)"], "unknown feature skew 'blur'; there are: noise, rotation"),
        (["--partition", "natural('writer')"], "the dataset has no column 'writer'"),
        (["--clients", "0"], "0 clients and seed 0; at least 1 client"),
        (["--clients", "1438"], "1437 samples; at least 1 for each client, 1438, are needed"),
        (["--seed", "-1"], "seed -1; at least 1 client and seed 0 are needed"),
        (["--dataset", "mnist", "--data-dir", "none"], "mnist: no train-images-idx3-ubyte in "),
    ],
)
def test_bad_arguments_are_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    out = tmp_path / "figures" / "partition.png"
    assert run(*arguments, "--out", str(out)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert says.partition(".*")[0] in printed.err
    assert says.rpartition(".*")[2] in printed.err
    assert not any(tmp_path.iterdir())


def test_another_kind_of_file_and_a_folder_that_cannot_be_made_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--out", str(tmp_path / "partition.txt")) == 2
    assert "the name of a .png file is needed" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert run("--out", str(tmp_path / "file" / "partition.png")) == 2
    assert "cannot be written" in capsys.readouterr().err
