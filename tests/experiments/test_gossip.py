"""The study of nodes on a graph: one line for each partition and method, rows in a file, and refusals before any training."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments import gossip

SMALL = ["--nodes", "3", "--rounds", "3", "--evaluate-every", "2", "--model", "logistic"]
METHODS = ["choco(dense(), step_size=1.0)", "deep_squeeze(topk(density=0.1), step_size=0.1)"]


@pytest.fixture(autouse=True)
def threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_line_for_each_partition_and_method_and_the_same_file_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*SMALL, "--partitions", "iid()", "skewed(0.8)", "--methods", *METHODS, "--momentum", "0.5", "--out"]
    assert gossip.main([*arguments, str(tmp_path / "a.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["iid()", "iid()", "skewed(0.8)", "skewed(0.8)"]
    assert [method in line for line, method in zip(lines[3:], METHODS * 2, strict=True)] == [True] * 4
    table = pd.read_csv(tmp_path / "a.csv")
    assert table["round"].tolist() == [2, 3] * 4
    assert (table["sent_bytes"].diff()[table["round"] == 3] > 0).all(), "they are sums"
    assert set(table["dense_bytes"]) == {rounds * 6 * 4 * 650 for rounds in (2, 3)}, (
        "a logistic regression of 8 x 8 pixels"
    )
    assert table["accuracy"].between(0.05, 1).all()
    assert (table["worst_accuracy"] <= table["accuracy"] + 0.2).all()
    gossip.main([*arguments, str(tmp_path / "b.csv")])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_each_training_has_a_line_and_two_seeds_have_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainings = ["", "low_precision(3)"]
    arguments = [*SMALL, "--partitions", "iid()", "--methods", METHODS[0], "--training", *trainings]
    assert gossip.main([*arguments, "--seeds", "2", "--out", str(tmp_path / "a.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[1] for line in lines] == ["-", "low_precision(bits=3)"]
    table = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert table["seed"].tolist() == [0, 0, 1, 1] * 2
    last = table[table["round"] == 3]
    for line, (_, group) in zip(lines, last.groupby("training"), strict=True):
        accuracy = 100 * group["accuracy"]
        assert f"{accuracy.mean():.1f} ± {accuracy.std():.1f}" in line
    assert last["accuracy"].nunique() > 2, "seeds and trainings differ"
    gossip.main([*arguments, "--seeds", "1", "--out", str(tmp_path / "b.csv")])
    first = pd.read_csv(tmp_path / "b.csv", keep_default_na=False)
    assert first.equals(table[table["seed"] == 0].reset_index(drop=True)), "a seed has the same rows in any run"


def test_a_round_ends_with_the_model_that_a_plug_in_means_to_be_used(tmp_path: Path) -> None:
    """Binary weights and float32 ones of one model have different accuracies."""
    accuracies = []
    for training in ("quantized('binary')", "fedprox(mu=0)"):
        out = str(tmp_path / "a.csv")
        arguments = ["--partitions", "iid()", "--methods", METHODS[0], "--learning-rate", "1e-9", "--out", out]
        assert gossip.main([*SMALL, *arguments, "--training", training]) == 0
        accuracies.append(pd.read_csv(out)["accuracy"].iloc[-1])
    assert accuracies[0] != accuracies[1]


def test_a_quasi_global_momentum_changes_what_nodes_with_other_classes_learn(tmp_path: Path) -> None:
    arguments = [*SMALL, "--partitions", "skewed(1)", "--methods", METHODS[0], "--momentum", "0.9", "--out"]
    gossip.main([*arguments, str(tmp_path / "a.csv")])
    gossip.main([*arguments, str(tmp_path / "b.csv"), "--quasi-global"])
    own, common = (pd.read_csv(tmp_path / name)["consensus_distance"].iloc[-1] for name in ("a.csv", "b.csv"))
    assert common < own


def test_a_step_size_that_is_not_named_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert gossip.main([*SMALL, "--partitions", "iid()", "--methods", "choco(dense())"]) == 0
    assert "choco(dense(), step_size=1.0)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology", "edges([[0, 1]])"], "topology is 'edges([[0, 1]])'; the graph is not connected"),
        (["--topology", "star()"], "unknown topology 'star'"),
        (["--nodes", "1"], "num_nodes is 1"),
        (["--methods", "choco(stc(), step_size=1.0)"], "method is 'choco(stc(), step_size=1.0)'; stc"),
        (["--partitions", "iid()", "skewed(2)"], "share is 2"),
        (["--partitions", "own()"], "own()"),
        (["--dataset", "nothing"], "no dataset card 'nothing'"),
        (["--model", "nothing"], "nothing"),
        (["--learning-rate", "0"], "--learning-rate is 0.0"),
        (["--training", "nothing()"], "training is 'nothing()'; unknown"),
        (["--training", "", "quantized(activations=2)"], "the model has no second layer"),
        (["--momentum", "1"], "--momentum is 1.0"),
        (["--momentum", "nan"], "--momentum is nan"),
        (["--quasi-global"], "--quasi-global is given, and --momentum is 0"),
        (["--out", "/nowhere/at/all.csv"], "--out is '/nowhere/at/all.csv'; a file in a folder that exists"),
        (["--out", "."], "--out is '.'; a file in a folder that exists"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_trained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(gossip, "run", never)
    assert gossip.main([*SMALL, "--methods", METHODS[0], *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1


def test_a_step_size_without_its_name_is_taken_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert gossip.main([*SMALL, "--partitions", "iid()", "--methods", "choco(dense(), 0.25)"]) == 0
    assert "choco(dense(), step_size=0.25)" in capsys.readouterr().out


def test_a_training_that_diverges_is_a_line_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    partitions = ["--partitions", "iid()", "skewed(0)", "--methods", METHODS[0], "--learning-rate", "1e30"]
    assert gossip.main([*SMALL, *partitions]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[0] for line in lines] == ["iid()", "skewed(0)"]
    assert all("seed 0: node 0:" in line for line in lines)


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--steps", "-1"], ["--learning-rate", "x"]])
def test_numbers_out_of_range_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gossip.main(arguments)
    assert arguments[1] in capsys.readouterr().err
