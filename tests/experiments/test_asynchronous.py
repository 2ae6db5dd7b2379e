"""The study of rounds and of versions of few updates, in virtual time."""

from pathlib import Path

import pandas as pd
import pytest

from experiments import asynchronous

SHORT = ["--seconds", "15", "--every", "5", "--nodes", "20", "--steps", "1", "--slow", "0.3"]


def test_versions_of_few_updates_come_sooner_than_rounds_and_repeat_to_the_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, again = tmp_path / "versions.csv", tmp_path / "again.csv"
    assert asynchronous.main([*SHORT, "--modes", "sync", "async(buffer=2)", "--out", str(out)]) == 0
    table = pd.read_csv(out)
    last = table.groupby("mode").last()
    assert set(last.index) == {"sync", "async(buffer=2)"}
    assert (last["seconds"] >= 15).all()
    assert last.loc["async(buffer=2)", "updates"] > 1.5 * last.loc["sync", "updates"]
    assert last.loc["sync", "updates"] == 4 * last.loc["sync", "version"]
    assert (table["version"] == 0).sum() == 2
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("sync ")
    assert f"{last.loc['sync', 'version']}" in shown[1]
    assert asynchronous.main([*SHORT, "--modes", "async(buffer=2)", "--out", str(again)]) == 0
    head, *lines = again.read_text().splitlines()
    assert [head, *(line for line in out.read_text().splitlines() if "async(buffer=2)" in line)] == [head, *lines]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--modes", "async(buffer=50)"], "buffer=50"),
        (["--modes", "async(staleness=0)"], "staleness is 0"),
        (["--modes", "later"], "later"),
        (["--seconds", "0"], "--seconds is 0"),
        (["--slowdown", "0.5"], "slowdown is 0.5"),
        (["--target", "2"], "--target is 2"),
        (["--uplink", "stcc()"], "stcc"),
        (["--model", "nosuch"], "unknown model 'nosuch'"),
        (["--model", "vgg11s"], "needs at least 32x32"),
        (["--dataset", "nosuch"], "no dataset card 'nosuch'"),
        (["--nodes", "2000"], "2000 clients"),
        (["--out", "no-such-folder/rows.csv"], "a file in a folder that exists"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(
    options: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asynchronous.main(options) == 2
    shown, error = capsys.readouterr()
    assert not shown
    assert found in error
    assert error.count("\n") == 1
