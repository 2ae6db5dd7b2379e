"""The figures hold what was measured: means over seeds at mean bytes, a band from least to most, one style a method."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from benchmarks.netshape.profiles import PROFILES
from experiments.curves import Study, read
from experiments.figures import QUANTITIES, accuracy_against, sweep, sweepable, time
from experiments.gallery import gallery
from experiments.network import seconds
from experiments.panels import FINE, ROOM, between, clock, grid, logarithmic, mark, styles
from experiments.points import pareto, time_to_target
from experiments.results import Row, to_frame
from tests.experiments.rows import cell, dense, study

UP, DOWN, BOTH, ITERATIONS, ROUNDS = QUANTITIES


def of(rows: list[Row]) -> Study:
    """Return the study of these rows."""
    return read(to_frame(rows))


def line(axes: Axes, at: int = 0) -> tuple[list[float], list[float]]:
    """Return x and y of a line."""
    drawn = axes.get_lines()[at]
    return list(map(float, np.asarray(drawn.get_xdata()))), list(map(float, np.asarray(drawn.get_ydata())))


def bands(axes: Axes) -> list[np.ndarray]:
    """Return the corners of each band."""
    return [np.asarray(one.get_paths()[0].vertices) for one in axes.collections if isinstance(one, PolyCollection)]


def entries(figure: Figure) -> list[str]:
    """Return the texts of the one legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_line_is_the_mean_over_seeds_and_its_band_goes_from_least_to_most() -> None:
    rows = cell([0.1, 0.4, 0.6], up=1_000_000) + cell([0.1, 0.6, 0.9], up=3_000_000, seed=1)
    (axes,) = accuracy_against(of(rows), UP).axes
    x, y = line(axes)
    assert x == [2, 4]  # round 0 has sent nothing, and has no place on a logarithmic axis
    assert y == pytest.approx([50, 75])
    (band,) = bands(axes)
    assert band[:, 1].min() == pytest.approx(40)
    assert band[:, 1].max() == pytest.approx(90)
    assert axes.get_xscale() == "log"


def test_one_seed_has_no_band() -> None:
    (axes,) = accuracy_against(of(cell([0.1, 0.4])), UP).axes
    assert bands(axes) == []


def test_down_and_both_hold_the_catch_up_and_iterations_begin_with_the_untrained_model() -> None:
    found = of(cell([0.1, 0.4], up=1_000_000, down=5_000_000, local_steps=25))
    assert line(accuracy_against(found, DOWN).axes[0])[0] == [5]
    assert line(accuracy_against(found, BOTH).axes[0])[0] == [6]
    assert line(accuracy_against(found, ROUNDS).axes[0])[0] == [1]
    assert line(accuracy_against(found, ITERATIONS).axes[0])[0] == [0, 25]


def test_seeds_that_were_evaluated_at_other_rounds_meet_where_both_were() -> None:
    rows = cell([0.1, 0.2, 0.3, 0.4]) + [row for row in cell([0.1, 0.4, 0.5, 0.6], seed=1) if row.round != 2]
    x, y = line(accuracy_against(of(rows), ROUNDS).axes[0])
    assert x == [1, 3]
    assert y == pytest.approx([30, 50])


def test_an_accuracy_that_is_missing_is_a_gap_and_not_a_zero() -> None:
    _, y = line(accuracy_against(of(cell([0.1, 0.2, None, 0.4])), ROUNDS).axes[0])
    assert y == pytest.approx([20, np.nan, 40], nan_ok=True)


def test_a_line_goes_on_with_the_seeds_that_are_left_when_one_diverged() -> None:
    rows = cell([0.1, 0.5, 0.9], up=1_000_000) + cell([0.1, 0.3, 0.7], up=1_000_000, seed=1)
    rows += cell([0.1, 0.1, None], up=7_000_000, seed=2)
    found = of([*rows, *cell([0.1, None], up=7_000_000, seed=3)])
    x, y = line(accuracy_against(found, UP).axes[0])
    assert x == pytest.approx([3, 2])  # MB: at round 1 of three seeds, at round 2 of the two that are left
    assert y == pytest.approx([30, 80])
    captions = {picture.name: picture.caption for picture in gallery(found)}
    assert "the seeds that are left" in captions["accuracy-against-uplink"]


def test_a_panel_a_scenario_with_one_legend_and_labels_with_units() -> None:
    figure = accuracy_against(of(study()), BOTH)
    assert [axes.get_title() for axes in figure.axes] == [f"classes per client: {count}" for count in (1, 2, 10)]
    assert entries(figure) == ["STC 1/100", "FedAvg n = 25"]
    assert "MB" in figure.get_supxlabel()
    assert figure.get_supylabel() == "test accuracy (%)"


def test_a_method_looks_the_same_in_all_figures_and_like_no_other() -> None:
    found = of(study())
    figures = (accuracy_against(found, UP), sweep(found, found.axes[0], "final"))
    assert len({figure.axes[0].get_lines()[1].get_color() for figure in figures}) == 1
    look = styles([f"method {at}" for at in range(21)])
    assert len({(one.color, str(one.dash)) for one in look.values()}) == 21
    assert len({one.marker for one in list(look.values())[:11]}) == 11


def test_a_sweep_is_drawn_over_the_numbers_in_the_partition() -> None:
    found = of(study())
    assert sweepable(found) == list(found.axes)
    figure = sweep(found, found.axes[0], "final")
    (axes,) = figure.axes
    x, y = line(axes)
    assert x == [1, 2, 10]
    assert y == pytest.approx([85.5] * 3)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "10"]
    assert figure.get_supxlabel() == "classes per client"
    assert len(bands(axes)) == 2


def test_the_best_accuracy_is_swept_beside_the_final_one() -> None:
    rows = cell([0.1, 0.9, 0.5]) + cell([0.1, 0.8, 0.6], batch_size=1)
    found = of(rows)
    assert line(sweep(found, found.axes[0], "best").axes[0])[1] == pytest.approx([80, 90])
    assert line(sweep(found, found.axes[0], "final").axes[0])[1] == pytest.approx([60, 50])


def test_two_axes_make_a_panel_for_each_value_of_the_other_and_points_alone_are_left_out() -> None:
    rows = [row for size in (1, 20) for part in (0.1, 0.5) for row in cell([0.1], batch_size=size, participation=part)]
    rows += cell([0.1], batch_size=40, participation=0.5)
    rows += cell([0.1], batch_size=40, participation=1.0)
    found = of(rows)
    by_name = {axis.column: axis for axis in found.axes}
    titles = [axes.get_title() for axes in sweep(found, by_name["batch_size"], "final").axes]
    assert titles == ["participation: 10 %", "participation: 50 %"]


def test_partitions_of_many_kinds_are_swept_by_name() -> None:
    rows = cell([0.1, 0.5], partition="iid()") + cell([0.1, 0.4], partition="classes(2)")
    found = of(rows)
    (axes,) = sweep(found, found.axes[0], "final").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["iid()", "classes(2)"]


def test_who_lies_on_the_front_is_filled_and_who_lies_behind_it_is_hollow() -> None:
    rows = cell([0.1, 0.8], up=1000, down=1000)
    rows += cell([0.1, 0.7], up=5000, down=5000, method="behind") + dense([0.1, 0.9])
    (axes,) = pareto(of(rows)).axes
    points = {
        str(one.get_color()): str(one.get_markerfacecolor())
        for one in axes.get_lines()
        if one.get_marker() in ("o", "s", "^")
    }
    look = styles(["STC 1/100", "behind", "FedAvg n = 25"])
    assert points[look["behind"].color] == "white"
    assert points[look["STC 1/100"].color] == look["STC 1/100"].color
    assert points[look["FedAvg n = 25"].color] == look["FedAvg n = 25"].color


def test_survivors_lie_on_no_front_and_at_their_own_bytes_and_say_how_many_they_are() -> None:
    rows = cell([0.1, 0.5, 0.9], up=1_000_000, down=0) + cell([0.1, None], seed=1) + cell([0.1, None], seed=2)
    rows += [row for seed in range(3) for row in dense([0.1, 0.7, 0.8], seed=seed)]
    (axes,) = pareto(of(rows)).axes
    front, *points = axes.get_lines()
    assert np.asarray(front.get_ydata()) == pytest.approx([80])
    (survivor,) = [one for one in points if one.get_markerfacecolor() == "white"]
    assert np.asarray(survivor.get_xdata()) == pytest.approx([2])
    assert [text.get_text() for text in axes.texts] == ["1 of 3 seeds"]


def test_the_time_to_a_target_is_that_of_its_first_evaluation() -> None:
    found = of(cell([0.1, 0.5, 0.9]) + dense([0.1, 0.2, 0.3]))
    (axes,) = time_to_target(found, [((), 0.5)]).axes
    x, _ = line(axes)
    assert x == pytest.approx([float(seconds(found.curves[0].measured, profile)[1]) for profile in PROFILES])
    assert [text.get_text() for text in axes.texts] == ["not reached"]
    assert entries(time_to_target(found, [((), 0.5)])) == [profile.name for profile in PROFILES]


def test_it_says_how_many_seeds_got_there() -> None:
    found = of(cell([0.1, 0.9]) + cell([0.1, 0.4], seed=1))
    (axes,) = time_to_target(found, [((), 0.5)]).axes
    assert [text.get_text() for text in axes.texts] == ["1 of 2 seeds"]


def test_time_over_a_network_is_drawn_in_seconds() -> None:
    found = of(cell([0.1, 0.5, 0.9]))
    x, _ = line(accuracy_against(found, time(PROFILES[0])).axes[0])
    assert x == pytest.approx(list(seconds(found.curves[0].measured, PROFILES[0])[1:]))


@pytest.mark.parametrize(
    "rows",
    [
        study(),
        cell([0.1, 0.5]),
        cell([0.1]),
        cell([None, None]),
        cell([0.1, None]) + dense([0.1, 0.5]),
        cell([0.1, None]) + cell([0.1, None], seed=1),
        cell([0.1]) + cell([0.1], seed=1),
        [replace(row, uplink_bytes=0, downlink_bytes=0) for row in cell([0.1, 0.2])],
    ],
    ids=[
        "whole",
        "one cell",
        "nothing trained",
        "no accuracy",
        "diverged",
        "all seeds diverged",
        "nobody trained",
        "nothing sent",
    ],
)
def test_every_figure_can_be_drawn_whatever_the_study(rows: list[Row]) -> None:
    pictures = list(gallery(of(rows)))
    assert len({picture.name for picture in pictures}) == len(pictures)
    for picture in pictures:
        picture.figure.draw_without_rendering()
        assert picture.caption


def test_more_panels_than_there_is_room_for_are_left_out_and_it_is_said() -> None:
    found = of([row for size in range(1, ROOM + 2) for row in cell([0.1, 0.5], batch_size=size)])
    assert len(accuracy_against(found, UP).axes) == ROOM
    captions = {picture.name: picture.caption for picture in gallery(found)}
    assert f"the first {ROOM} of {ROOM + 1} settings" in captions["accuracy-against-uplink"]


def test_marks_of_time_have_whole_numbers_and_their_units_in_the_singular() -> None:
    marks = (0.01, 0.1, 1, 10, 60, 1200, 3600, 86400, 10 * 86400, 365.25 * 86400)
    said = ["0.01 s", "0.1 s", "1 s", "10 s", "1 min", "20 min", "1 h", "1 day", "10 days", "1 year"]
    assert [mark(time) for time in marks] == said
    assert len({mark(time) for time in FINE}) == len(FINE)


@pytest.mark.parametrize("low", [0.011, 0.9, 11, 61, 700, 4000, 40_000, 90_000, 9e6, 4e7])
@pytest.mark.parametrize("ratio", [1.0, 1.01, 2.5, 30.0, 1e4])
def test_every_axis_of_time_has_two_marks_at_least(low: float, ratio: float) -> None:
    _, (axes,) = grid(["a panel"], "time", "accuracy")
    axes.plot([low, low * ratio], [0, 1])
    clock(axes)
    least, most = axes.get_xlim()
    assert least <= low
    assert low * ratio <= most
    assert len([tick for tick in axes.get_xticks() if least <= tick <= most]) >= 2


@pytest.mark.parametrize(("low", "high"), [(1.2, 1.9), (11, 19), (2.1, 8.4), (5, 60), (0.3, 0.31), (0.001, 5000)])
def test_every_logarithmic_axis_has_two_plain_labels_at_least(low: float, high: float) -> None:
    figure, (axes,) = grid(["a panel"], "MB", "accuracy")
    axes.plot([low, high], [0, 1])
    logarithmic(axes)
    figure.draw_without_rendering()
    least, most = axes.get_xlim()
    ticks = [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]
    labels = [tick.label1.get_text() for tick in ticks if least <= tick.get_loc() <= most and tick.label1.get_text()]
    assert len(labels) >= 2
    assert all(float(label) > 0 for label in labels)


def test_a_wide_axis_is_not_labelled_between_powers_of_ten() -> None:
    assert between(2, 1, 1000) == ""
    assert [between(value, 1, 10) for value in (2, 3, 5)] == ["2", "", "5"]
    assert between(3, 2, 4) == "3"
