"""A partition is shown as numbers and as a figure."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from experiments.partition import draw, main, numbers
from fedcomp.data import Spread

SPREAD = Spread(np.array([[4, 0], [2, 6], [8, 8], [1, 99]]), np.array([20, 120]))


def test_the_table_has_a_row_for_each_partition_below_its_name() -> None:
    _, *lines = numbers({"half": SPREAD, "again": SPREAD}).splitlines()
    assert (lines[0], lines[2], lines[4]) == ("half", "again", "")
    # Classes 1, 2, 2, 2; sizes 4, 8, 16, 100: median 12; Gini (-3*4 - 8 + 16 + 300) / (4 * 128); 12 of 140 unused.
    assert " ".join(lines[1].split()[2:]) == "1/1.8/2 4/12/100 0.578 12"


def test_the_table_fits_into_80_columns() -> None:
    many = Spread(np.full((100, 100), 1234), np.full(100, 123_456))
    text = numbers({"dirichlet(alpha=0.3) + rotation(degrees=30)": many, "stc(classes=2, gamma=0.95)": SPREAD})
    assert max(map(len, text.splitlines())) <= 80
    assert "dirichlet(alpha=0.3) + rotation(degrees=30)" in text.splitlines()


def test_a_panel_shows_shares_in_percent_below_sizes() -> None:
    figure = draw({"half": SPREAD}, ("cat", "dog"), "a title")
    above, below = figure.axes[:2]
    (image,) = below.images
    shares = image.get_array()
    assert shares is not None
    assert np.ma.getdata(shares).tolist() == [[100, 25, 50, 1], [0, 75, 50, 99]]
    assert [bar.get_height() for bar in above.patches if isinstance(bar, Rectangle)] == [4, 8, 16, 100]
    assert [label.get_text() for label in below.get_yticklabels()] == ["cat", "dog"]
    assert above.get_title().startswith("half\nJensen-Shannon 0.")


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_row_has_at_most_three_panels(count: int) -> None:
    figure = draw({f"p{number}": SPREAD for number in range(count)}, ("cat", "dog"), "a title")
    assert len(figure.axes) == 2 * count + 1  # and the colour bar
    figure.draw_without_rendering()
    tops = {round(axes.get_position().y1, 2) for axes in figure.axes if axes.get_title()}
    assert len(tops) == -(-count // 3)


def test_numbers_maps_and_a_figure_of_partitions_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures" / "partition.png"
    assert main(["--partition", "iid()", "classes(1) + noise(0.1)", "--clients", "20", "--out", str(out)]) == 0
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
    assert main([*arguments, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert says.partition(".*")[0] in printed.err
    assert says.rpartition(".*")[2] in printed.err
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("undrawn")
def test_another_kind_of_file_and_a_folder_that_cannot_be_made_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "partition.txt")]) == 2
    assert "partition.txt" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file" / "partition.png")]) == 2
    assert "cannot be used" in capsys.readouterr().err
