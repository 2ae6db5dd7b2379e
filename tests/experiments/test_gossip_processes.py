"""A graph of processes on this machine, with keys and settings that the command makes."""

import re
from pathlib import Path

import numpy as np
import pytest

from experiments import gossip_processes
from fedcomp.core import read_archive

SHORT = ["--nodes", "3", "--rounds", "3"]


@pytest.mark.nightly
@pytest.mark.system
def test_nodes_learn_and_a_second_run_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--folder", str(tmp_path / "ring")]
    assert gossip_processes.main([*SHORT, *folder]) == 0
    first = capsys.readouterr().out
    assert re.search(r"^3 rounds; the models are \d", first, re.MULTILINE)
    assert gossip_processes.main(["--nodes", "3", "--rounds", "40", *folder]) == 0
    second = capsys.readouterr().out.splitlines()
    accuracies = [float(line.split()[1]) for line in second[1:4]]
    assert min(accuracies) > 75
    assert all(10 < float(line.split()[-1].rstrip("x")) < 17 for line in second[1:4])
    lines = (tmp_path / "ring" / "node-0" / "rounds.jsonl").read_text().splitlines()
    assert len(lines) == 40
    models = [read_archive(tmp_path / "ring" / f"node-{node}" / "state")["node/model"] for node in range(3)]
    distance = np.sqrt(np.mean(np.square(models - np.mean(models, axis=0)).sum(axis=1)))
    assert f"the models are {distance:.3f} from their mean" in second[-1]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--topology", "edges([[0, 1]])"], "topology is"),
        (["--method", "choco(stc())"], "method is"),
        (["--partition", "skewed(2)"], "2"),
        (["--dataset", "none-such"], "none-such"),
        (["--nodes", "1"], "1"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(
    options: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gossip_processes.main([*SHORT, *options]) == 2
    error = capsys.readouterr().err
    assert found in error
    assert error.count("\n") == 1
