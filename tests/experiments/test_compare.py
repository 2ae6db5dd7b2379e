"""Runs side by side: the settings that differ, and numbers that a person can add up."""

from pathlib import Path

import numpy as np
import pytest

from experiments.compare import common_accuracy, draw, main, read_runs, results_table, settings_table
from fedcomp.sync import Traffic
from server.folder import RunFolder
from server.run_records import RoundRecord


def write_run(path: Path, accuracies: list[float | None], up: int = 1000, **settings: object) -> Path:
    """Write a run whose rounds cost `up` bytes up, four times as much down, and 50 kB each way if they were dense."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.write_json("settings.json", {"dataset": "digits", "run-name": path.name, "num-rounds": 3, **settings})
    for number, accuracy in enumerate(accuracies):
        traffic = Traffic(up, 4 * up, 0, 50_000, 50_000) if number else Traffic()
        folder.append(RoundRecord(number, accuracy, None, traffic))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs that end alike, and differ in the uplink; the second has a setting that the first does not name."""
    return [
        write_run(tmp_path / "a", [0.1, 0.5, None, 0.958], uplink="stc()"),
        write_run(tmp_path / "b", [0.1, 0.7, 0.949, 0.93], up=10_000, uplink="dense()", weighting="uniform"),
    ]


def test_settings_that_differ_have_a_column_for_each_run(runs: list[Path]) -> None:
    table = settings_table(read_runs(runs))
    assert table.head == ("setting", "a", "b")
    assert table.rows == (("uplink", "stc()", "dense()"), ("weighting", "-", "uniform"))


def test_the_common_accuracy_is_the_highest_whole_percent_that_all_reach(runs: list[Path], tmp_path: Path) -> None:
    assert common_accuracy(read_runs(runs)) == 0.94
    assert common_accuracy(read_runs([*runs, write_run(tmp_path / "c", [0.1, 0.29])])) == 0.29
    assert common_accuracy(read_runs([*runs, write_run(tmp_path / "d", [0.1, 0.1])])) is None


def test_bytes_are_sums_of_all_rounds_and_of_those_until_the_target(runs: list[Path]) -> None:
    table = results_table(read_runs(runs), 0.94)
    assert table.head[-3:] == ("rounds to 94 %", "up to 94 %", "both to 94 %")
    assert table.rows == (
        ("a", "3", "95.8%", "95.8%", "3.0 kB", "12.0 kB", "15.0 kB", "20.0", "3", "3.0 kB", "15.0 kB"),
        ("b", "3", "93.0%", "94.9%", "30.0 kB", "120 kB", "150 kB", "2.0", "2", "20.0 kB", "100 kB"),
    )
    assert results_table(read_runs(runs), 0.95).rows[1][-3:] == ("never",) * 3
    assert results_table(read_runs(runs), None).head[-1] == "ratio"


def test_the_figure_has_a_line_for_each_run_over_its_bytes(runs: list[Path]) -> None:
    figure = draw(read_runs(runs), 0.94)
    (axes,) = figure.axes
    first, second, goal = axes.get_lines()
    assert np.asarray(first.get_xdata()).tolist() == [0.005, 0.015]  # MB; round 2 was not evaluated
    assert np.asarray(second.get_ydata()).tolist() == pytest.approx([70, 94.9, 93])
    assert np.asarray(goal.get_ydata()).tolist() == [94, 94]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a: 15.0 kB", "b: 150 kB"]


def test_folders_of_one_name_are_labelled_by_their_paths_and_a_run_that_goes_on_counts_so_far(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / part / "same", [0.1, 0.5]) for part in ("x", "y")]
    with (paths[0] / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "accu')  # a line that is being written
    found = read_runs(paths)
    assert list(found) == [str(path) for path in paths]
    assert [row[1] for row in results_table(found, None).rows] == ["1", "1"]


def test_a_name_is_in_the_legend_as_it_is(tmp_path: Path) -> None:
    names = ["_a", r"$\frac$ and $x^2$"]
    paths = [str(write_run(tmp_path / name, [0.1, 0.5])) for name in names]
    (legend,) = draw(read_runs([*map(Path, paths)]), None).legends
    assert [text.get_text() for text in legend.get_texts()] == [f"{name}: 5.0 kB" for name in names]
    assert main([*paths, "--out", str(tmp_path / "c.svg")]) == 0
    text = (tmp_path / "c.svg").read_text()
    assert all(f">{name}: 5.0 kB</text>" in text for name in names)
    assert "mathdefault" not in text


@pytest.mark.parametrize(("kind", "begins"), [("text", "Settings"), ("markdown", "Settings"), ("latex", "% Settings")])
def test_the_command_prints_both_tables_and_writes_the_figure(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, begins: str
) -> None:
    out = tmp_path / "new" / "compare.svg"
    assert main([*map(str, runs), "--tables", kind, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(begins)
    assert "dense()" in printed.out
    assert "95.8" in printed.out
    assert str(out) in printed.err
    assert "<svg" in out.read_text()


def test_a_tilde_in_a_path_is_the_home_folder(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(runs[0].parent))
    assert main(["~/a", "~/b", "--out=~/c.svg"]) == 0
    assert (runs[0].parent / "c.svg").exists()


def test_runs_with_equal_settings_have_no_table_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_run(tmp_path / name, [0.1, 0.5])) for name in "ab"]
    assert main([*paths, "--out", str(tmp_path / "c.png")]) == 0
    assert "Settings" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("settings.json", None, "settings.json"),
        ("settings.json", "{", "no JSON"),
        ("rounds.jsonl", "[1]\n", "an object is needed"),
        ("rounds.jsonl", '{"round": "1"}\n', "no round"),
        ("rounds.jsonl", '{"round": null, "accuracy": 1, "loss": 1}\n', "number"),
        ("rounds.jsonl", '{"round": 1, "accuracy": 1, "loss": 1, "uplink_bytes": null}\n', "bytes"),
        ("rounds.jsonl", '{"round": 0, "accuracy": 0.1, "loss": 1}\n', "no accuracy"),
        ("rounds.jsonl", None, "no accuracy"),
    ],
)
def test_a_damaged_run_is_refused_in_one_sentence_and_nothing_is_written(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, words: str
) -> None:
    (runs[1] / name).unlink()
    if text is not None:
        (runs[1] / name).write_text(text, encoding="utf-8")
    assert main([*map(str, runs), "--out", str(tmp_path / "new" / "c.png")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert str(runs[1]) in printed.err
    assert words in printed.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["nowhere"], "nowhere does not exist; name the folder of a run"),
        (["--target", "80"], "80"),
        (["--out", "figure.jpg"], "figure.jpg"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(
    runs: list[Path], capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    assert main([*map(str, runs), *more]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert words in printed.err


def test_a_folder_given_twice_is_refused(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs[0]), str(runs[0].parent / "b" / ".." / "a")]) == 2
    assert "twice" in capsys.readouterr().err
