"""A table of results becomes a study: its axes, the accuracy of its runs, their targets, and the Pareto front."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.study import TARGET_SHARES, pareto_front, read_study, spread
from tests.experiments.rows import cell, dense, rows, study, sweep


def test_a_study_has_its_methods_axes_scenarios_and_targets_in_order() -> None:
    found = study(*sweep(), given=(0.8, 0.5, 0.8))
    assert found.methods == ["STC 1/100", "FedAvg n = 25"]
    assert [axis.name for axis in found.axes] == ["classes per client"]
    assert found.scenarios == {f"classes per client: {classes}": (classes,) for classes in (1, 2, 10)}
    assert len(found.runs) == 12
    assert found.has_seeds
    assert set(found.targets.values()) == {(0.8, 0.5)}, "given targets count once and for every scenario"


def test_local_steps_are_an_axis_only_if_they_vary_within_a_method() -> None:
    assert study(cell([0.1], local_steps=1), dense([0.1], local_steps=25)).axes == ()
    (axis,) = study(cell([0.1], local_steps=1), cell([0.1], local_steps=5, seed=1)).axes
    assert axis.values == (1, 5)


def test_a_learning_rate_that_changes_with_the_dataset_is_not_an_axis() -> None:
    cells = (
        cell([0.1], dataset="mnist", learning_rate=0.04),
        cell([0.1], dataset="cifar10", learning_rate=0.016, seed=1),
    )
    assert [axis.column for axis in study(*cells).axes] == ["dataset"]


def test_a_tuned_learning_rate_that_changes_with_the_local_steps_is_not_an_axis() -> None:
    def cells(rate_of_one: float) -> list[pd.DataFrame]:
        return [
            cell([0.1], method=method, local_steps=steps, learning_rate=rate, seed=seed).assign(
                cell=f"{method}{steps}{seed}"
            )
            for method, rates in {"dense": {1: 1.0, 20: 8.0}, "sign": {1: rate_of_one, 20: 8.0}}.items()
            for steps, rate in rates.items()
            for seed in (0, 1)
        ]

    for rate_of_one in (1.0, 0.5):  # both methods choose alike, or not
        found = study(*cells(rate_of_one))
        assert [axis.column for axis in found.axes] == ["local_steps"]
        assert len(found.scenarios) == 2
    both = [
        each.assign(learning_rate=rate, cell=each["cell"] + str(rate)) for each in cells(1.0) for rate in (0.1, 0.2)
    ]
    assert [axis.column for axis in study(*both).axes] == ["local_steps", "learning_rate"]


def test_two_cells_of_a_method_and_a_seed_in_one_setting_are_no_two_seeds() -> None:
    """As those of a study whose file was changed, in a setting that the table does not have."""
    cells = [cell([0.1], seed=seed) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"cells .* and other are both STC 1/100 with seed 1 in one setting"):
        study(*cells, cell([0.9], seed=1).assign(cell="other"))


def test_five_of_ever_more_clients_are_one_axis_the_participation() -> None:
    found = study(
        *(
            cell([0.1], partition=f"stc(classes={classes})", clients=clients, participation=5 / clients)
            for clients in (5, 10, 400)
            for classes in (2, 10)
        )
    )
    assert [axis.name for axis in found.axes] == ["classes per client", "participation"]
    assert "classes per client: 2, participation: 1.25 %" in found.scenarios
    assert len(found.scenarios) == 6
    assert list(found.split(found.axes[1])) == ["classes per client: 2", "classes per client: 10"]


def test_scenarios_that_differ_along_one_axis_have_all_others_in_common() -> None:
    found = study(
        *(
            cell([0.1], partition=f"stc(classes={classes})", clients=clients, participation=part)
            for classes in (2, 10)
            for clients in (5, 10)
            for part in (0.2, 1.0)
        )
    )
    for axis in found.axes:
        groups = found.split(axis)
        assert [len(scenarios) for scenarios in groups.values()] == [2] * 4
        for title, scenarios in groups.items():
            assert all(part in scenario for scenario in scenarios for part in title.split(", "))


def test_clients_and_participation_that_vary_independently_are_two_axes() -> None:
    found = study(*(cell([0.1], clients=clients, participation=part) for clients in (5, 10) for part in (0.2, 1.0)))
    assert [axis.column for axis in found.axes] == ["participation", "clients"]


@pytest.mark.parametrize(
    ("table", "settings", "number"),
    [
        (rows(0), {}, "at least one"),
        (cell([0.1]), {"given": (0.5, 80.0)}, "80"),
        (cell([0.1]), {"given": (0.0,)}, "0"),
        (cell([0.1]), {"slowdown": 0.0}, "0"),
        (cell([0.1]), {"slowdown": math.inf}, "inf"),
    ],
)
def test_an_empty_table_and_impossible_settings_are_refused(
    table: pd.DataFrame, settings: dict[str, Any], number: str
) -> None:
    with pytest.raises(ValueError, match=number):
        read_study(table, **settings)


@pytest.mark.parametrize(
    ("accuracies", "final", "best"),
    [
        ([0.1, 0.9, 0.7], 0.7, 0.9),
        ([0.1, 0.9, None], math.nan, 0.9),  # diverged
        ([None, None], math.nan, math.nan),
        ([0.5, 0.2, 0.1], 0.1, 0.2),
        ([0.5, None], math.nan, math.nan),
    ],
)
def test_final_is_the_last_accuracy_and_best_the_highest_after_a_round(
    accuracies: list[float | None], final: float, best: float
) -> None:
    run = study(cell(accuracies)[::-1]).runs.iloc[0]  # the order of the rows does not matter
    assert [run["final"], run["best"]] == pytest.approx([final, best], nan_ok=True)


def test_the_spread_over_seeds_is_that_of_a_sample() -> None:
    found = study(cell([0.8]), cell([0.9], seed=1), cell([None], seed=2), dense([0.7]))
    stc, fedavg = (values for _, values in spread(found.runs, "final").iterrows())
    assert stc["mean"] == pytest.approx(0.85)
    assert stc["std"] == pytest.approx(0.1 / math.sqrt(2))
    assert (stc["low"], stc["high"], stc["count"], stc["of"], stc["whole"]) == (0.8, 0.9, 2, 3, False)
    assert (fedavg["mean"], fedavg["std"], fedavg["count"], fedavg["of"], fedavg["whole"]) == (0.7, 0, 1, 3, False)


def test_all_seeds_are_those_of_all_methods_in_the_same_setting() -> None:
    cells = [cell([0.1, 0.8]), cell([0.1, 0.9], seed=2), dense([0.1, 0.7]), dense([0.1, 0.7], batch_size=1)]
    found = study(*cells, given=(0.5,))
    assert spread(found.runs, "final")["of"].to_dict() == {
        ("batch size: 1", "FedAvg n = 25"): 1,
        ("batch size: 20", "STC 1/100"): 2,
        ("batch size: 20", "FedAvg n = 25"): 2,
    }
    assert spread(found.reached, "round", ("scenario", "target", "method"))["of"].tolist() == [1, 2, 2]
    in_one = found.runs[found.runs["scenario"] == "batch size: 20"]
    assert spread(in_one, "final", ["method"])["of"].to_dict() == {"STC 1/100": 2, "FedAvg n = 25": 2}


def test_a_target_counts_from_the_first_evaluation_that_reaches_it() -> None:
    first = study(cell([0.5, 0.4, 0.8, 0.6]), given=[0.5, 0.9]).reached
    assert first["round"].tolist() == pytest.approx([2, math.nan], nan_ok=True)  # the untrained model does not count
    assert first["uplink_bytes"].tolist() == pytest.approx([2000, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("cells", "derived"),
    [
        ([cell([0.1, 0.99]), dense([0.1, 0.8]), dense([0.1, 0.6], method="FedAvg n = 100")], (0.72, 0.76)),
        ([cell([0.1, 0.8])], (0.72, 0.76)),  # no dense method
        ([cell([0.1, 0.8]), dense([0.1, None])], (0.72, 0.76)),  # the dense method diverged
        ([cell([0.1, None]), dense([0.1, None])], ()),
        ([cell([0.1, 0.9]), dense([0.1, 0.102])], ()),  # no better than untrained
        ([cell([0.74, 0.9]), dense([0.1, 0.8])], (0.76,)),
    ],
)
def test_targets_are_fractions_of_the_best_dense_accuracy(
    cells: list[pd.DataFrame], derived: tuple[float, ...]
) -> None:
    assert TARGET_SHARES == (0.9, 0.95)
    assert study(*cells).targets == {"": derived}


def test_the_front_by_hand() -> None:
    points = pd.DataFrame([(10, 0.9), (1, 0.5), (5, 0.4), (5, 0.7), (20, 0.9), (2, math.nan)], columns=["sent", "mean"])
    assert pareto_front(points).index.tolist() == [1, 3, 0]


def test_no_point_dominates_one_on_the_front_and_one_dominates_each_other_point() -> None:
    points = pd.DataFrame(np.random.default_rng(5).integers(0, 8, (60, 2)), columns=["sent", "mean"])
    front = {tuple(point) for point in pareto_front(points).to_numpy()}

    def dominated(x: int, y: int) -> bool:
        return any(u <= x and v >= y and (u, v) != (x, y) for u, v in points.to_numpy())

    assert all(dominated(x, y) == ((x, y) not in front) for x, y in points.to_numpy())
