"""The tables and the summary of a study, calculated by hand."""

import pandas as pd
import pytest

from experiments.study import Study
from experiments.study_report import named_tables
from experiments.summary import sentences, summary_table, warnings
from experiments.tables import (
    accuracy_tables,
    byte_tables,
    catch_up_tables,
    methods_table,
    ratio_tables,
    target_table,
    time_table,
    times,
)
from tests.experiments.rows import cell, dense, study, sweep


@pytest.fixture(scope="module")
def swept() -> Study:
    """Return a study of three settings, two methods and two seeds, with a target."""
    return study(*sweep(), given=(0.5,))


def test_a_method_is_listed_with_its_settings_and_its_measured_ratios() -> None:
    table = methods_table(study(cell([0.1, 0.5], up=1000, down=4000)))
    assert dict(zip(table.head, table.rows[0], strict=True)) == {
        "method": "STC 1/100",
        "uplink": "stc(density=0.01)",
        "downlink": "stc(density=0.01)",
        "strategy": "fedavg",
        "local steps": "1",
        "learning rate": "0.04",
        "momentum": "0",
        "ratio up": "100.0",
        "ratio down": "25.0",
    }
    assert methods_table(study(cell([0.1]))).rows[0][-2:] == ("-", "-")  # nothing was sent


def test_bytes_to_a_target_are_those_at_the_first_evaluation_that_reaches_it() -> None:
    cells = [cell([0.1, 0.4, 0.6, 0.9], up=1_000_000, down=4_000_000), dense([0.1, 0.5, 0.55])]
    table = target_table(study(*cells, given=(0.6,)))
    stc, fedavg = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (stc["rounds"], stc["up (MB)"], stc["down (MB)"], stc["both (MB)"]) == ("2", "2.00", "8.00", "10.0")
    assert (stc["up a message"], stc["down a message"]) == ("100 kB", "400 kB")  # ten nodes take part
    assert stc["reached by"] == "1 of 1 seed"
    assert fedavg["both (MB)"] == "-"
    assert fedavg["reached by"] == "0 of 1 seed"


def test_the_mean_is_over_the_seeds_that_reach_a_target_and_a_winner_reaches_it_with_all() -> None:
    cells = [cell([0.1, 0.6], up=1_000_000, down=0), cell([0.1, 0.2], seed=1)]
    cells += [dense([0.1, 0.2, 0.7]), dense([0.1, 0.7, 0.7], seed=1)]
    table = target_table(study(*cells, given=(0.6,)))
    column = table.head.index("both (MB)")
    assert [row[column] for row in table.rows] == ["1.00", "0.300"]
    assert [row[-1] for row in table.rows] == ["1 of 2 seeds", "2 of 2 seeds"]
    assert table.best == {(1, column)}


def test_times_have_a_column_for_each_network() -> None:
    table = time_table(study(cell([0.1, 0.9]), given=(0.5,)))
    (row,) = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    # 1 Gb/s: two round trips of 1 ms, 0.5 s on the node and 0.1 s on the server; 100 and 800 bytes take no time
    assert row["1 Gb/s"] == "0.6 s"
    assert row["reached by"] == "1 of 1 seed"


def test_the_tables_of_a_study_have_names_and_numbered_ones_if_there_are_several() -> None:
    cells = [cell([0.1, 0.5], batch_size=size) for size in (1, 20)]
    assert list(named_tables(pd.concat(cells), (0.4, 0.5))) == [
        "accuracy", "bytes-to-target-1", "bytes-to-target-2", "targets", "ratios", "catch-up",
    ]  # fmt: skip
    tables = named_tables(cell([0.1, 0.5]), (0.5,))
    assert tables["accuracy"].rows == (("STC 1/100", "50.0"),)
    assert tables["bytes-to-target"].rows == (("STC 1/100", "0.00100 (0.00500)"),)


def test_the_summary_names_the_best_final_accuracy_and_the_fewest_bytes(swept: Study) -> None:
    table = summary_table(swept)
    assert table.rows[0][:4] == (
        "classes per client: 1",
        "STC 1/100 (85.5 ± 0.7 %)",
        "50 %",
        "STC 1/100 (5.0 kB; 40.0 times fewer than FedAvg n = 25)",
    )
    assert table.rows[2][1] == "FedAvg n = 25 (86.0 ± 1.4 %)"
    clear = " The lead over the next method exceeds the spread over seeds (the larger ± of the two) in 2 of 3 settings."
    assert sentences(swept) == [
        "The highest mean final accuracy: of 3 settings, STC 1/100 in 2; FedAvg n = 25 in 1." + clear,
        "The fewest bytes to the target accuracy, up and down: of 3 settings, STC 1/100 in 3.",
    ]


def test_each_setting_may_have_targets_of_its_own() -> None:
    cells = [dense([0.1, best], batch_size=size) for size, best in ((1, 0.9), (2, 0.92), (3, 0.925))]
    table = summary_table(study(*cells))  # a warning of pandas about the order of its index would be an error
    assert [row[2] for row in table.rows] == ["81 %", "85 %", "82 %", "87 %", "83 %", "87 %"]


def test_the_mean_of_the_survivors_wins_nothing() -> None:
    cells = [cell([0.1, 0.9]), cell([0.1, None], seed=1), dense([0.1, 0.4]), dense([0.1, 0.4], seed=1)]
    assert summary_table(study(*cells, given=(0.3,))).rows[0][0] == "FedAvg n = 25 (40.0 ± 0.0 %)"


def test_the_mean_over_some_seeds_says_so_and_wins_nothing() -> None:
    cells = [cell([0.1, 0.9]), *(dense([0.1, 0.4], seed=seed) for seed in (0, 1, 2))]
    found = study(*cells, given=(0.3,))
    (accuracy,), (sent,), target = accuracy_tables(found, "final"), byte_tables(found), target_table(found)
    assert accuracy.rows == (("STC 1/100", "90.0 (1 of 3 seeds)"), ("FedAvg n = 25", "40.0 ± 0.0"))
    assert sent.rows[0][1].endswith(", 1 of 3 seeds")
    assert [row[-1] for row in target.rows] == ["1 of 3 seeds", "3 of 3 seeds"]
    assert {row for row, _ in [*accuracy.best, *sent.best, *target.best]} == {1}
    assert r"90.0 (1 of 3 seeds) \\" in accuracy.to_latex()
    assert summary_table(found).rows[0][0] == "FedAvg n = 25 (40.0 ± 0.0 %)"
    assert study(*cells).targets == {"": (0.36, 0.38)}, "of the method that has all seeds"


def test_a_target_that_no_method_reaches_is_reported() -> None:
    found = study(cell([0.1, 0.9]), dense([0.1, 0.8]), given=(0.99,))
    assert sentences(found)[1] == "No method reaches a target accuracy with all of its seeds."
    assert summary_table(found).rows[0][2:] == ("-", "-")


def test_an_unfinished_study_reports_its_progress(swept: Study) -> None:
    assert warnings(swept, 12, 40) == ["The study is not finished: 12 of 40 cells (runs) are in this report."]
    assert warnings(swept, 12, 12) == warnings(swept) == []


def test_diverged_runs_and_a_single_seed_are_reported() -> None:
    found = warnings(study(cell([0.1, None]), dense([0.1, 0.5])))
    assert found[0] == "1 of 2 runs end without an accuracy or a finite loss (they diverged): STC 1/100."
    assert found[1].startswith("There is one seed")


def test_methods_that_show_the_same_number_tie_in_the_order_of_the_study() -> None:
    found = study(
        dense([0.1, 0.80001], method="B"), dense([0.1, 0.8], method="A"), dense([0.1, 0.7], method="C"), given=(0.75,)
    )
    (table,) = accuracy_tables(found, "final")
    assert table.best == {(0, 1), (1, 1)}
    assert target_table(found).best == {(0, 6), (1, 6)}
    assert summary_table(found).rows[0][:3] == ("B (80.0 %) = A (80.0 %)", "75 %", "B = A (200 kB)")
    assert sentences(found) == [
        "The highest mean final accuracy: B = A.",
        "The fewest bytes to the target accuracy, up and down: B = A.",
    ]


def test_a_tie_counts_for_each_method() -> None:
    cells = [dense([0.1, 0.8], method="B"), dense([0.1, 0.8], method="A")]
    cells += [dense([0.1, 0.7], method="B", batch_size=1), dense([0.1, 0.8], method="A", batch_size=1)]
    assert sentences(study(*cells, given=(0.75,))) == [
        "The highest mean final accuracy: of 2 settings (ties count for each), A in 2; B in 1.",
        "The fewest bytes to the target accuracy, up and down: of 2 settings (ties count for each), A in 2; B in 1.",
    ]


def test_a_lead_within_the_spread_is_not_clear() -> None:
    cells = [cell([0.1, 0.7]), cell([0.1, 0.9], seed=1), dense([0.1, 0.79]), dense([0.1, 0.79], seed=1)]
    assert sentences(study(*cells, given=(0.5,)))[0].endswith("in 0 of 1 setting.")


def test_a_method_that_lacks_a_seed_is_not_compared() -> None:
    cells = [cell([0.1, 0.9]), cell([0.1, 0.9], seed=1), dense([0.1, 0.7])]
    assert sentences(study(*cells, given=(0.5,)))[0] == "The highest mean final accuracy: STC 1/100."


def test_a_method_that_sends_nothing_has_no_ratio() -> None:
    found = study(cell([0.1, 0.9], up=0, down=0), dense([0.1, 0.7]), given=(0.5,))
    assert summary_table(found).rows[0][2] == "STC 1/100 (0 B)"


def test_a_setting_without_a_target_still_has_a_best_final_accuracy() -> None:
    found = study(cell([0.1, 0.5]), dense([0.1, 0.102]))
    assert summary_table(found).rows == (("STC 1/100 (50.0 %)", "-", "-", "-"),)
    assert "no target accuracy" in sentences(found)[1]


def test_missing_runs_are_reported_even_without_a_plan() -> None:
    cells = [cell([0.1, 0.5]), cell([0.1, 0.5], seed=1), dense([0.1, 0.5])]
    assert warnings(study(*cells))[0].startswith("3 of 4 runs")
    assert warnings(study(*cells), 3, 3) == []


def test_accuracies_are_means_with_their_deviation_and_the_best_of_a_column_is_marked(swept: Study) -> None:
    (table,) = accuracy_tables(swept, "final")
    assert table.head == ("method", "1", "2", "10")
    assert table.rows[0] == ("STC 1/100", "85.5 ± 0.7", "85.5 ± 0.7", "85.5 ± 0.7")
    assert table.rows[1] == ("FedAvg n = 25", "59.0 ± 1.4", "62.0 ± 1.4", "86.0 ± 1.4")
    assert table.best == {(0, 1), (0, 2), (1, 3)}


def test_a_seed_without_an_accuracy_is_counted_and_a_cell_that_has_not_run_is_empty() -> None:
    (table,) = accuracy_tables(
        study(cell([0.1, 0.5]), cell([0.1, None], seed=1), dense([0.1, 0.4], batch_size=1)), "final"
    )
    assert table.rows == (("STC 1/100", "", "50.0 (1 of 2 seeds)"), ("FedAvg n = 25", "40.0", ""))
    assert table.best == {(1, 1)}


def test_bytes_to_a_given_target_have_a_column_for_each_setting() -> None:
    cells = [cell([0.1, 0.6], up=1_000_000), cell([0.1, 0.2, 0.6], up=1_000_000, seed=1)]
    cells += [cell([0.1, 0.6], batch_size=1), cell([0.1, 0.5], batch_size=1, seed=1), dense([0.1, 0.5], batch_size=2)]
    cells += [dense([0.1, 0.7], batch_size=size, seed=seed) for size in (1, 20) for seed in (0, 1)]
    (table,) = byte_tables(study(*cells, given=(0.6, 0.6)))
    assert table.head == ("method", "1", "2", "20")
    assert table.rows == (
        ("STC 1/100", "0.00100 (0.00500), 1 of 2 seeds", "", "1.50 (1.51)"),
        ("FedAvg n = 25", "0.100 (0.200)", "never", "0.100 (0.200)"),
    )
    assert table.best == {(1, 1), (1, 3)}
    assert "60 %" in table.caption
    assert "by batch size" in table.caption
    assert byte_tables(study(*cells)) == []
    (alone,) = byte_tables(study(cell([0.1, 0.9]), given=(0.5,)))
    assert alone.head == ("method", "up (up and down)")


def test_ratios_and_catch_up_of_complete_runs() -> None:
    found = study(
        cell([0.1, 0.5], up=1000, down=4000),
        cell([0.1, 0.5], up=3000, down=12_000, seed=1),
        cell([0.1, 0.5], batch_size=1, up=1000, down=9000),
        dense([0.1]),
    )
    (ratios,), (catch_up,) = ratio_tables(found), catch_up_tables(found)
    assert ratios.head == catch_up.head == ("method", "1", "20")
    assert ratios.rows == (("STC 1/100", "100 (20)", "50 (20)"), ("FedAvg n = 25", "", "-"))  # 100 kB each way a round
    assert catch_up.rows == (("STC 1/100", "50.0 %", "50.0 %"), ("FedAvg n = 25", "", "-"))


def test_a_ratio_of_a_thousand_and_more_has_no_exponent() -> None:
    found = study(cell([0.1, 0.5], up=10, down=190))  # 100 kB each way a round
    assert ratio_tables(found)[0].rows == (("STC 1/100", "10,000 (1,000)"),)
    assert [times(ratio) for ratio in (2.019, 999.4, 999.6)] == ["2.02", "999", "1,000"]


def test_the_frames_of_the_downlink_are_shown_by_their_kinds() -> None:
    runs = cell([0.1, 0.5], up=1000, down=4000).assign(jump_bytes=2000, delta_bytes=1000, key_bytes=40)
    (table,) = catch_up_tables(study(runs))
    assert table.rows == (("STC 1/100", "50.0 % (1, 50, 25, 0)"),)


def test_of_two_axes_the_longer_has_the_columns_and_the_other_a_table_for_each_value() -> None:
    cells = [cell([0.1, 0.5], batch_size=size, partition="stc(classes=10)") for size in (1, 5, 20)]
    cells += [cell([0.1, 0.9], batch_size=20), dense([0.1, 0.8], batch_size=1), dense([0.1, 0.95], batch_size=20)]
    first, second = accuracy_tables(study(*cells), "final")
    assert ", by batch size (classes per client: 2)" in first.caption
    assert ", by batch size (classes per client: 10)" in second.caption
    assert (first.head[1:], second.head[1:]) == (("1", "20"), ("1", "5", "20"))
    assert first.rows == (("STC 1/100", "", "90.0"), ("FedAvg n = 25", "80.0", "95.0"))
    assert first.best == {(1, 1), (1, 2)}
    assert second.rows == (("STC 1/100", "50.0", "50.0", "50.0"), ("FedAvg n = 25", "", "", ""))
    assert len(byte_tables(study(*cells, given=(0.4, 0.6)))) == 4
