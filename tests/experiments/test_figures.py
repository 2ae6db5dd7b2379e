"""The figures show what was measured: means over seeds at mean bytes, a band from lowest to highest, one look a method."""

from collections.abc import Iterator
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from seaborn import FacetGrid

from benchmarks.figure_file import to_bytes
from benchmarks.netshape.profiles import PROFILES
from experiments import figures
from experiments.figures import COSTS, accuracy_against, pareto, pictures, sweep, time_to_target
from experiments.study import Study
from tests.experiments import rows
from tests.experiments.rows import cell, dense, study


@pytest.fixture(autouse=True)
def _close_figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plt.switch_backend("agg")
    monkeypatch.setattr(FacetGrid, "tight_layout", lambda grid: grid)  # the figures' own layout replaces it
    yield
    plt.close("all")


def line(axes: Axes, number: int = 0) -> tuple[list[float], list[float]]:
    """Return x and y of a line that has points."""
    lines = [one for one in axes.get_lines() if len(np.asarray(one.get_xdata()))]
    x, y = (np.asarray(data, float).tolist() for data in lines[number].get_data())
    return x, y


def drawn(figure: Figure | None) -> Figure:
    """Return a figure that has points."""
    assert figure is not None
    return figure


def against(found: Study, cost: str) -> Figure:
    """Return the figure of accuracy against one of `COSTS`."""
    column, label, _ = COSTS[cost]
    return drawn(accuracy_against(found, column, label))


def bands(axes: Axes) -> list[np.ndarray]:
    """Return the corners of each band."""
    return [np.asarray(one.get_paths()[0].vertices) for one in axes.collections if isinstance(one, PolyCollection)]


def legend(figure: Figure) -> list[str]:
    """Return the texts of the one legend."""
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_a_line_is_the_mean_over_seeds_and_its_band_reaches_from_lowest_to_highest() -> None:
    found = study(cell([0.1, 0.4, 0.6], up=1_000_000), cell([0.1, 0.6, 0.9], up=3_000_000, seed=1))
    (axes,) = against(found, "uplink").axes
    x, y = line(axes)
    assert x == [2, 4]  # MB; a logarithmic axis has no place for round 0, which has sent nothing
    assert y == pytest.approx([50, 75])
    (band,) = bands(axes)
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((40, 90))
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize(("cost", "x"), [("downlink", [5]), ("both", [6]), ("rounds", [1]), ("iterations", [0, 25])])
def test_costs_include_catch_up_and_iterations_begin_with_the_untrained_model(cost: str, x: list[float]) -> None:
    found = study(cell([0.1, 0.4], up=1_000_000, down=5_000_000, local_steps=25))
    assert line(against(found, cost).axes[0])[0] == x


def test_a_line_goes_on_with_the_seeds_that_are_left_when_one_diverges() -> None:
    found = study(
        cell([0.1, 0.5, 0.9], up=1_000_000),
        cell([0.1, 0.3, 0.7], up=1_000_000, seed=1),
        cell([0.1, 0.1, None], up=7_000_000, seed=2),
        cell([0.1, None], up=7_000_000, seed=3),
    )
    x, y = line(against(found, "uplink").axes[0])
    assert x == pytest.approx([3, 2])  # MB: of three seeds at round 1, of the two that are left at round 2
    assert y == pytest.approx([30, 80])


def test_a_figure_has_a_panel_for_each_scenario_one_legend_and_units() -> None:
    figure = against(study(*rows.sweep()), "both")
    assert [axes.get_title() for axes in figure.axes] == [f"classes per client: {count}" for count in (1, 2, 10)]
    assert legend(figure) == ["STC 1/100", "FedAvg n = 25"]
    assert "MB" in figure.get_supxlabel()
    assert "%" in figure.get_supylabel()


def test_a_method_looks_the_same_in_all_figures_and_unlike_the_others() -> None:
    found = study(*rows.sweep())
    figures = (against(found, "uplink"), drawn(sweep(found, found.axes[0], "final")))
    assert len({str(figure.axes[0].get_lines()[0].get_color()) for figure in figures}) == 1
    many = study(*(cell([0.1, 0.5], method=f"method {number}") for number in range(21)))
    lines = against(many, "rounds").axes[0].get_lines()[:21]
    assert len({(str(one.get_color()), one.get_linestyle(), one.get_marker()) for one in lines}) == 21


def test_a_sweep_is_drawn_over_the_numbers_in_the_partition() -> None:
    found = study(*rows.sweep())
    figure = drawn(sweep(found, found.axes[0], "final"))
    (axes,) = figure.axes
    x, y = line(axes)
    assert x == [1, 2, 10]
    assert y == pytest.approx([85.5] * 3)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "10"]
    assert figure.get_supxlabel() == "classes per client"
    assert len(bands(axes)) == 2


def test_the_best_accuracy_is_swept_like_the_final_one() -> None:
    found = study(cell([0.1, 0.9, 0.5]), cell([0.1, 0.8, 0.6], batch_size=1))
    assert line(drawn(sweep(found, found.axes[0], "best")).axes[0])[1] == pytest.approx([80, 90])
    assert line(drawn(sweep(found, found.axes[0], "final")).axes[0])[1] == pytest.approx([60, 50])


def test_two_axes_make_a_panel_for_each_value_of_the_other_that_has_several_points() -> None:
    cells = [cell([0.1], batch_size=size, participation=part) for size in (1, 20) for part in (0.1, 0.5)]
    found = study(*cells, cell([0.1], batch_size=40, participation=0.5), cell([0.1], batch_size=40, participation=1.0))
    (axis,) = [axis for axis in found.axes if axis.column == "batch_size"]
    titles = [axes.get_title() for axes in drawn(sweep(found, axis, "final")).axes]
    assert titles == ["participation: 10 %", "participation: 50 %"]


def test_partitions_of_several_kinds_are_swept_by_their_texts() -> None:
    found = study(cell([0.1, 0.5], partition="iid()"), cell([0.1, 0.4], partition="classes(2)"))
    (axes,) = drawn(sweep(found, found.axes[0], "final")).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["iid()", "classes(2)"]


def test_the_front_joins_the_methods_that_no_other_dominates() -> None:
    cells = [
        one
        for seed in (0, 1)
        for one in (
            cell([0.1, 0.8], up=500_000, down=500_000, seed=seed),
            cell([0.1, 0.7], up=5_000_000, down=5_000_000, method="behind", seed=seed),
            cell([0.1, 0.9], up=10_000_000, down=10_000_000, method="best", seed=seed),
        )
    ]
    survivors = cell([0.1, 1.0], method="survivor"), cell([0.1, None], method="survivor", seed=1)
    found = study(*cells, *survivors, cell([0.1, 0.95], method="of one seed"))
    (axes,) = drawn(pareto(found)).axes
    front, heights = line(axes)
    assert front == pytest.approx([1, 20])
    assert heights == pytest.approx([80, 90])
    (points, *_) = axes.collections
    alpha = dict(
        zip(np.asarray(points.get_offsets())[:, 1].round().tolist(), np.asarray(points.get_alpha()), strict=True)
    )
    assert alpha == {80: 1, 70: 0.3, 90: 1, 100: 0.3, 95: 0.3}


def test_the_time_to_a_target_is_that_of_its_first_evaluation() -> None:
    cells = cell([0.1, 0.5, 0.9]), dense([0.1, 0.2, 0.3])
    found = study(*cells, given=[0.5])
    figure = drawn(time_to_target(found))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["STC 1/100", "FedAvg n = 25"]
    assert figure.get_supxlabel().startswith("seconds")
    points = [np.asarray(one.get_offsets()) for one in axes.collections]
    x = sorted(float(value) for offsets in points for value, y in offsets if y == 0)
    first = found.table[found.table["round"] == 1].query("method == 'STC 1/100'")
    assert x == pytest.approx(sorted(float(first[profile.name].iloc[0]) for profile in PROFILES))
    assert all(y == 0 for offsets in points for _, y in offsets)  # the other method has no marker
    assert legend(figure) == [profile.name for profile in PROFILES]
    assert time_to_target(study(*cells, given=[0.95])) is None


@pytest.mark.parametrize("second", [[], [dense([0.1, None], seed=1)]], ids=["missing", "diverged"])
def test_the_caption_says_that_a_seed_is_missing_or_has_diverged(second: list[pd.DataFrame]) -> None:
    whole = [cell([0.1, 0.5]), cell([0.1, 0.5], seed=1)]
    captions = [next(iter(pictures(study(*cells)))).caption for cells in (whole, [*whole, dense([0.1, 0.5]), *second])]
    assert ["missing or has diverged" in caption for caption in captions] == [False, True]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "cells",
    [
        [cell([0.1, None]), dense([0.1, 0.5])],
        [cell([0.1, None]), cell([0.1, None], seed=1)],
        [cell([None, None])],
        [cell([0.1, 0.2], up=0, down=0)],
    ],
    ids=["one seed diverged", "all seeds diverged", "no accuracy", "nothing sent"],
)
def test_every_figure_of_every_study_can_be_drawn(cells: list[pd.DataFrame]) -> None:
    names = []
    for picture in pictures(study(*cells)):
        assert picture.caption
        names.append(picture.name)
    assert len(set(names)) == len(names)
    assert bool(names) == study(*cells).table["accuracy"].notna().any()


def test_a_label_is_shown_as_it_is() -> None:
    labels = ["_a", r"$\frac$ and $x^2$"]
    cells = [
        one for label in labels for one in (cell([0.1, 0.5], method=label), cell([0.1, 0.6], method=label, seed=1))
    ]
    for picture in pictures(study(*cells, given=(0.4,))):
        text = to_bytes(picture.figure, "svg").decode()
        assert all(f">{label}</text>" in text for label in labels), picture.name
        assert "mathdefault" not in text


def test_panels_beyond_the_limit_are_left_out_and_the_caption_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MAX_PANELS", 3)
    found = study(*(cell([0.1, 0.5], batch_size=size) for size in (1, 2, 3, 4)))
    assert len(against(found, "uplink").axes) == 3
    assert "3 of 4" in next(iter(pictures(replace(found, axes=())))).caption


def test_a_legend_of_many_methods_leaves_the_panel_its_height() -> None:
    def height(methods: int) -> float:
        names = [f"method {number} with a name as long as those of pairs" for number in range(methods)]
        figure = drawn(pareto(study(*(cell([0.1, 0.5], method=name) for name in names))))
        figure.canvas.draw()
        return float(figure.axes[0].get_position().height * figure.get_figheight())

    assert height(15) == pytest.approx(height(2), rel=0.15)
