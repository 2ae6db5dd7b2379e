"""The study of models that are cut in two: one line for each method, rows in a file, and refusals before any training."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments import split

SMALL = [
    "--nodes",
    "2",
    "--rounds",
    "3",
    "--evaluate-every",
    "2",
    "--steps",
    "2",
    "--samples",
    "40",
    "--batch-size",
    "16",
]
METHODS = ["change(cgx(bits=2))", "direct(cgx(bits=2), backward=dense())", "federated(stc(density=0.1))"]


@pytest.fixture(autouse=True)
def threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_line_for_each_method_and_the_same_file_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--methods", *METHODS, "--pretrain", "1", "--out"]
    assert split.main([*arguments, str(tmp_path / "a.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "16 x 4 x 4 activations" in lines[0]
    assert [method in line for line, method in zip(lines[4:], METHODS, strict=True)] == [True] * 3
    table = pd.read_csv(tmp_path / "a.csv")
    assert table["round"].tolist() == [2, 3] * 3
    assert table["accuracy"].between(0.05, 1).all()
    change, direct = (table[table["method"] == method].iloc[-1] for method in METHODS[:2])
    assert change["first_bytes"] == 2 * 40 * (4 * 256 + 1), "each of 40 samples, once"
    assert direct["first_bytes"] == 2 * 40, "labels alone"
    visits, weights = 2 * 2 * 40, 2 * 2 * 3 * 160
    assert change["dense_bytes"] == 4 * (2 * visits * 256 + weights), "two epochs of two nodes, both ways"
    assert direct["downlink_bytes"] > change["downlink_bytes"], "the gradients are float32"
    split.main([*arguments, str(tmp_path / "b.csv")])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "conv"], "the model has no layer 'conv'"),
        (["--methods", "change(stc())"], "forward is stc"),
        (["--methods", "change(cgx(bits=2), backward=auto())"], "backward is auto()"),
        (["--methods", "federated(nothing())"], "method is 'federated(nothing())'"),
        (["--methods", "split()"], "method is 'split()'; unknown method 'split'"),
        (["--partition", "nothing()"], "nothing"),
        (["--dataset", "nothing"], "no dataset card 'nothing'"),
        (["--model", "nothing"], "nothing"),
        (["--learning-rate", "0"], "learning_rate is 0.0"),
        (["--momentum", "1"], "momentum is 1.0"),
        (["--out", "/nowhere/at/all.csv"], "--out is '/nowhere/at/all.csv'; a file in a folder that exists is needed"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_trained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(split.SplitMethod, "run", never)
    monkeypatch.setattr(split.Federated, "run", never)
    assert split.main([*SMALL, "--methods", METHODS[0], *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1
