"""The benchmark of memory: what it refuses, and what a run of it finds."""

import pytest

from benchmarks.memory import main


@pytest.mark.parametrize("flag", ["--entries=1000", "--rounds=1"])
def test_too_small_a_run_is_one_sentence(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 2
    assert "at least 1000000 and 2 are needed" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.nightly
@pytest.mark.system
def test_each_process_of_a_run_has_its_peak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--entries", "20000000", "--nodes", "1", "--rounds", "2", "--link", "stc(density=0.01)"]) == 0
    title, _, head, plain, compressed = capsys.readouterr().out.splitlines()
    assert title == "1 nodes, 20,000,000 entries: peak memory in models"
    assert head.split() == ["app", "ClientApp", "SuperNode", "ServerApp", "SuperLink"]
    client, _, server, _ = map(float, plain.split()[-4:])
    assert 2 < client < 5
    assert 4 < server < 9
    assert float(compressed.split()[-4]) < client + 3
    assert float(compressed.split()[-2]) < server + 4
