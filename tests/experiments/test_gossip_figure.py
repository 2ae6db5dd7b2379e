"""The figure of consensus distances: its panels and lines, and files that do not fit."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from experiments import gossip_figure

METHODS = ("choco(dense(), step_size=1.0)", "deep_squeeze(topk(density=0.1), step_size=0.1)")


def rows(trainings: tuple[str, ...] = ("",)) -> pd.DataFrame:
    return pd.DataFrame(
        {"partition": partition, "training": training, "method": method, "seed": seed, "round": number}
        | {"consensus_distance": (seed + 1) / number}
        for partition in ("iid()", "skewed(0.8)")
        for training in trainings
        for method in METHODS
        for seed in (0, 1)
        for number in (1, 2, 4)
    )


@pytest.mark.parametrize("trainings", [("",), ("", "low_precision(bits=8)")])
def test_a_panel_for_each_partition_and_a_line_of_means_for_each_method(trainings: tuple[str, ...]) -> None:
    figure = gossip_figure.figure_of(rows(trainings))
    assert [axes.get_title() for axes in figure.axes] == ["iid()", "skewed(0.8)"]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == (
        list(METHODS)
        if len(trainings) == 1
        else [f"{method} after {training or 'float32'}" for training in trainings for method in METHODS]
    )
    for axes in figure.axes:
        lines = [line for line in axes.get_lines() if np.size(line.get_xdata())]
        assert len(lines) == len(trainings) * len(METHODS)
        for line in lines:
            assert np.asarray(line.get_xdata()).tolist() == [1, 2, 4]
            assert np.asarray(line.get_ydata()).tolist() == [1.5, 0.75, 0.375]
    plt.close(figure)


def test_a_text_is_shown_as_it_is(tmp_path: Path) -> None:
    rows().assign(partition=r"$\frac$").to_csv(tmp_path / "a", index=False)
    assert gossip_figure.main([str(tmp_path / "a"), str(tmp_path / "b.svg")]) == 0
    text = (tmp_path / "b.svg").read_text()
    assert r">$\frac$</text>" in text
    assert "mathdefault" not in text


def test_a_line_for_each_method_of_several_files(tmp_path: Path) -> None:
    for name, method in zip("ab", METHODS, strict=True):
        table = rows()
        table = table[table["partition"] == "iid()"]
        table[table["method"] == method].to_csv(tmp_path / name, index=False)
    table = gossip_figure.read([tmp_path / "a", tmp_path / "b"])
    assert table["method"].unique().tolist() == list(METHODS)
    assert table["training"].unique().tolist() == [""], "an empty text is no missing number"
    assert gossip_figure.main([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "new" / "c.png")]) == 0
    assert (tmp_path / "new" / "c.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("text", "figure", "named"),
    [
        ("", "c.png", "rows.csv': No columns"),
        ("round,method\n1,a\n", "c.png", "rows.csv' has no column consensus_distance"),
        (",".join(gossip_figure.COLUMNS), "c.png", "rows.csv' has no rows"),
        (None, "c.png", "No such file"),
        ("", "c.jpg", "a name that ends in .png, .svg or .pdf"),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    text: str | None, figure: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "rows.csv").write_text(text)
    assert gossip_figure.main([str(tmp_path / "rows.csv"), str(tmp_path / figure)]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert not (tmp_path / figure).exists()
