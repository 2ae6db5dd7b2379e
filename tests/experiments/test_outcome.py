"""What came of a method: its accuracy over seeds, what it took to a target, and who lies on the Pareto front."""

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.curves import Study, read
from experiments.outcome import accuracies, accuracy, at_target, front, reached, spread, targets, winners
from experiments.results import Row, to_frame
from tests.experiments.rows import cell, dense, study


def of(rows: list[Row]) -> Study:
    """Return the study of these rows."""
    return read(to_frame(rows))


def test_a_study_knows_its_methods_axes_and_scenarios() -> None:
    found = of(study())
    assert found.methods == ("STC 1/100", "FedAvg n = 25")
    assert [axis.name for axis in found.axes] == ["classes per client"]
    assert found.scenarios == ((1,), (2,), (10,))
    assert len(found.curves) == 12
    assert [curve.seed for curve in found.seeds("FedAvg n = 25", (2,))] == [0, 1]
    assert found.title((2,)) == "classes per client: 2"


def test_local_steps_that_go_with_the_method_are_no_axis_and_those_that_vary_within_it_are() -> None:
    assert of(cell([0.1], local_steps=1) + dense([0.1], local_steps=25)).axes == ()
    (axis,) = of(cell([0.1], local_steps=1) + cell([0.1], local_steps=5, seed=1)).axes
    assert axis.values == (1, 5)


def test_a_learning_rate_that_goes_with_the_dataset_is_no_axis_of_its_own() -> None:
    rows = cell([0.1], dataset="mnist", learning_rate=0.04) + cell(
        [0.1], dataset="cifar10", learning_rate=0.016, seed=1
    )
    assert [axis.column for axis in of(rows).axes] == ["dataset"]


def test_clients_that_grow_while_five_take_part_are_one_axis_the_participation() -> None:
    rows = [
        row
        for clients in (5, 10, 20, 50, 100, 200, 400)
        for classes in (2, 10)
        for row in cell([0.1], partition=f"stc(classes={classes})", clients=clients, participation=5 / clients)
    ]
    found = of(rows)
    assert [axis.name for axis in found.axes] == ["classes per client", "participation"]
    assert found.title((2, 0.0125)) == "classes per client: 2, participation: 1.25 %"
    assert len(found.scenarios) == 14


def test_clients_and_participation_that_vary_by_themselves_are_two_axes() -> None:
    rows = [
        row for clients in (5, 10) for part in (0.2, 1.0) for row in cell([0.1], clients=clients, participation=part)
    ]
    rows = [replace(row, cell=f"{row.cell}|{row.clients}") for row in rows]
    assert [axis.column for axis in of(rows).axes] == ["participation", "clients"]


def test_rounds_are_put_in_order() -> None:
    (curve,) = of(cell([0.1, 0.2, 0.3])[::-1]).curves
    assert curve["accuracy"].tolist() == [0.1, 0.2, 0.3]


def test_a_table_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one finished cell"):
        of([])


def test_final_is_the_last_accuracy_and_best_the_highest() -> None:
    (curve,) = of(cell([0.1, 0.9, 0.7])).curves
    assert accuracy(curve, "final") == 0.7
    assert accuracy(curve, "best") == 0.9


def test_a_run_that_diverged_has_no_final_accuracy() -> None:
    (curve,) = of(cell([0.1, 0.9, None])).curves
    assert math.isnan(accuracy(curve, "final"))
    assert accuracy(curve, "best") == 0.9
    (nothing,) = of(cell([None, None])).curves
    assert math.isnan(accuracy(nothing, "best"))


def test_the_spread_over_seeds_is_that_of_a_sample() -> None:
    value = spread([0.8, 0.9, math.nan])
    assert value.mean == pytest.approx(0.85)
    assert value.std == pytest.approx(0.1 / math.sqrt(2))
    assert (value.low, value.high, value.count, value.of) == (0.8, 0.9, 2, 3)
    assert spread([0.7]).std == 0
    assert spread([math.nan]).count == 0


def test_a_target_counts_from_the_first_evaluation_that_has_it() -> None:
    (curve,) = of(cell([0.1, 0.5, math.nan, 0.8, 0.6])).curves
    assert reached(curve, 0.5) == 1
    assert reached(curve, 0.51) == 3
    assert reached(curve, 0.9) is None
    assert at_target(curve, 0.51, curve["uplink_bytes"]) == 3000
    assert math.isnan(at_target(curve, 0.9, curve["uplink_bytes"]))


def test_an_untrained_model_reaches_nothing() -> None:
    (curve,) = of(cell([0.5, 0.4, 0.6])).curves
    assert reached(curve, 0.5) == 2


def test_a_target_that_the_untrained_model_has_is_not_derived() -> None:
    assert targets(of(cell([0.1, 0.9]) + dense([0.1, 0.102])), (), ()) == ()
    assert targets(of(cell([0.74, 0.9]) + dense([0.1, 0.8])), (), ()) == (0.76,)


def test_targets_follow_from_all_methods_where_those_that_send_dense_diverged() -> None:
    assert targets(of(cell([0.1, 0.8]) + dense([0.1, None])), (), ()) == (0.72, 0.76)
    assert targets(of(cell([0.1, None]) + dense([0.1, None])), (), ()) == ()


def test_a_target_asked_for_twice_is_one() -> None:
    assert targets(of(cell([0.1, 0.8])), (), (0.8, 0.5, 0.8)) == (0.8, 0.5)


def test_winners_are_all_that_are_shown_as_the_best_is() -> None:
    assert winners([(1.04, "1.0"), (1.0, "1.0"), (2.0, "2.0"), (math.nan, "nan")]) == [0, 1]
    assert winners([(1.04, "1.0"), (1.0, "1.0"), (2.0, "2.0")], most=True) == [2]
    assert winners([(math.nan, "nan")]) == []


def test_targets_not_asked_for_are_parts_of_the_best_that_sends_dense() -> None:
    found = of(cell([0.1, 0.99]) + dense([0.1, 0.8]) + dense([0.1, 0.6], method="FedAvg n = 100"))
    assert targets(found, (), ()) == (0.72, 0.76)
    assert targets(found, (), (0.5,)) == (0.5,)
    assert targets(of(cell([0.1, 0.8])), (), ()) == (0.72, 0.76)


def test_accuracies_are_those_of_one_method_in_one_scenario() -> None:
    value = accuracies(of(study()), "STC 1/100", (2,), "final")
    assert [value.low, value.high] == pytest.approx([0.85, 0.86])
    assert value.of == 2


def test_the_front_leaves_out_who_sends_more_and_ends_worse() -> None:
    assert front([(10, 0.9), (1, 0.5), (5, 0.4), (5, 0.7), (20, 0.9), (2, math.nan)]) == [1, 3, 0]


def test_no_point_dominates_one_on_the_front_and_one_does_each_behind_it() -> None:
    rng = np.random.default_rng(5)
    points = [(float(x), float(y)) for x, y in rng.integers(0, 8, (60, 2))]
    kept = front(points)

    def beaten(at: int) -> bool:
        x, y = points[at]
        return any(u <= x and v >= y and (u, v) != (x, y) for u, v in points)

    assert not any(beaten(at) for at in kept)
    chosen = {points[at] for at in kept}
    assert all(beaten(at) for at in range(len(points)) if points[at] not in chosen)
