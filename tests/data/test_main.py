"""The command that writes and checks folders of nodes' own samples."""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcomp.data import load, load_own, partition_train, read_card
from fedcomp.data.__main__ import main

CARDS = Path(__file__).parents[2] / "datasets"
CARD = str(CARDS / "digits.toml")


def test_share_writes_the_parts_of_the_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["share", CARD, "--partition", "classes(2)", "--nodes", "3", "--seed", "5", "--out", str(tmp_path)]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    dataset = load(read_card("digits", CARDS))
    for number, rows in enumerate(partition_train(dataset, "classes(2)", 3, 5)):
        own = load_own(dataset.card, tmp_path / f"node-{number}")
        assert np.array_equal(own.x, dataset.train.x[rows])
        assert np.array_equal(own.y, dataset.train.y[rows])
        assert lines[number] == f"{tmp_path / f'node-{number}'}: {len(rows)} samples of 2 of 10 classes"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node-0", "node-1", "node-2"]


def test_pack_writes_a_devices_arrays_and_check_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((4, 8, 8), np.float32), y=np.array([7, 7, 1, 7]))
    out = str(tmp_path / "data")
    assert main(["pack", CARD, str(tmp_path / "mine.npz"), "--out", out]) == 0
    assert main(["check", CARD, out]) == 0
    assert capsys.readouterr().out == 2 * f"{out}: 4 samples of 2 of 10 classes\n"
    assert main(["pack", CARD, str(tmp_path / "mine.npz"), "--out", out]) == 2
    assert "digits.npz" in capsys.readouterr().err
    assert main(["pack", CARD, str(tmp_path / "mine.npz"), "--out", out, "--over"]) == 0


def test_pack_writes_over_no_file_that_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, samples = tmp_path / "digits.toml", tmp_path / "digits.npz"
    card.write_bytes(Path(CARD).read_bytes())
    np.savez(samples, x=np.ones((4, 8, 8), np.float32), y=np.array([7, 7, 1, 7]), more=np.ones(3))
    before = [path.read_bytes() for path in (card, samples)]
    (tmp_path / "link").symlink_to(tmp_path)
    for read, written in (([str(card), str(samples)], "digits.toml"), ([CARD, str(samples)], "digits.npz")):
        for out in (tmp_path, tmp_path / "link"):
            assert main(["pack", *read, "--out", str(out), "--over"]) == 2
            sentence = f"data: {out / written} would be both read and written; another --out is needed\n"
            assert capsys.readouterr().err == sentence
    assert [path.read_bytes() for path in (card, samples)] == before


@pytest.mark.parametrize("name", ["digits", "sonnets"])
def test_a_device_packs_samples_of_every_embedded_dataset(tmp_path: Path, name: str) -> None:
    card = read_card(name, CARDS)
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, *card.shape), np.uint8), y=np.array([0, 1, 0, 1]))
    arguments = ["pack", str(CARDS / f"{name}.toml"), str(tmp_path / "mine.npz"), "--out", str(tmp_path / "data")]
    assert main(arguments) == 0
    assert len(load_own(card, tmp_path / "data").y) == 4


def test_a_tilde_in_a_path_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["share", CARD, "--nodes", "2", "--out=~/shares"]) == 0
    assert main(["check", CARD, "~/shares/node-1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{tmp_path}/shares/node-1: ")
    with pytest.raises(SystemExit):
        main(["check", CARD, "~nobody-of-this-name/x"])
    assert "argument FOLDER: '~nobody-of-this-name/x': " in capsys.readouterr().err


def test_sonnets_are_shared(tmp_path: Path) -> None:
    assert main(["share", str(CARDS / "sonnets.toml"), "--nodes", "2", "--out", str(tmp_path / "shares")]) == 0
    dataset = load(read_card("sonnets", CARDS))
    parts = [load_own(dataset.card, tmp_path / "shares" / f"node-{number}") for number in range(2)]
    assert sum(len(part.y) for part in parts) == len(dataset.train.y)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["share", CARD, "--nodes", "3", "--partition", "own()"], "each node brings its own samples"),
        (["share", CARD, "--nodes", "3", "--partition", "iid + noise(1)"], "skews features"),
        (["share", CARD, "--nodes", "0"], "0 clients and seed 0; at least 1 client"),
        (
            ["share", "nowhere.toml", "--nodes", "3"],
            "nowhere.toml: No such file or directory; a dataset card is needed",
        ),
        (["pack", CARD, "nowhere.npz"], "nowhere.npz: No such file or directory"),
        (["pack", CARD, CARD], "digits.toml: not a readable .npz"),
    ],
)
def test_an_error_is_one_sentence_and_leaves_no_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_share_does_not_overwrite_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node-1").mkdir()
    assert main(["share", CARD, "--nodes", "2", "--out", str(tmp_path)]) == 2
    assert "node-1 " in capsys.readouterr().err
    assert not (tmp_path / "node-0").exists()


def test_without_a_command_it_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert capsys.readouterr().err.endswith("the following arguments are required: share|pack|check\n")


def test_the_example_in_the_help_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("For example")]
    words = shlex.split(line.partition("fedcomp data ")[2])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets").symlink_to(CARDS)
    assert main(words) == 0
    assert len(list((tmp_path / "shares").iterdir())) == 3


def test_all_shares_are_written_though_nobody_reads_the_lines(tmp_path: Path) -> None:
    call = ["data", "share", CARD, "--nodes", "3", "--out", str(tmp_path / "shares")]
    command = [sys.executable, "-u", "-m", "fedcomp", *call]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CARDS.parent) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert len(list((tmp_path / "shares").iterdir())) == 3
