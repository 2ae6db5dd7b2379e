"""The tables of a study, reckoned by hand."""

from experiments.curves import Study, read
from experiments.grids import accuracy_tables
from experiments.results import Row, to_frame
from experiments.study_report import markdown
from experiments.summary import sentences, summary_table, warnings
from experiments.tables import methods_table, target_table, time_table
from tests.experiments.rows import cell, dense, study


def of(rows: list[Row]) -> Study:
    """Return the study of these rows."""
    return read(to_frame(rows))


def test_a_method_is_said_with_its_settings_and_its_measured_ratios() -> None:
    table = methods_table(of(cell([0.1, 0.5], up=1000, down=4000)))
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


def test_a_method_that_has_sent_nothing_has_no_ratio() -> None:
    assert methods_table(of(cell([0.1]))).rows[0][-2:] == ("-", "-")


def test_bytes_to_target_are_those_at_the_first_evaluation_that_has_it() -> None:
    rows = cell([0.1, 0.4, 0.6, 0.9], up=1_000_000, down=4_000_000) + dense([0.1, 0.5, 0.55])
    table = target_table(of(rows), (0.6,))
    stc, fedavg = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (stc["rounds"], stc["up (MB)"], stc["down (MB)"], stc["both (MB)"]) == ("2", "2.00", "8.00", "10.0")
    assert (stc["up a message"], stc["down a message"]) == ("100 kB", "400 kB")  # ten nodes take part
    assert stc["reached by"] == "1 of 1 seed"
    assert fedavg["both (MB)"] == "-"
    assert fedavg["reached by"] == "0 of 1 seed"


def test_the_mean_is_over_the_seeds_that_reach_it_and_only_who_always_does_is_the_best() -> None:
    rows = cell([0.1, 0.6], up=1_000_000, down=0) + cell([0.1, 0.2], seed=1)
    rows += dense([0.1, 0.2, 0.7]) + dense([0.1, 0.7, 0.7], seed=1)
    table = target_table(of(rows), (0.6,))
    column = table.head.index("both (MB)")
    assert [row[column] for row in table.rows] == ["1.00", "0.300"]
    assert [row[-1] for row in table.rows] == ["1 of 2 seeds", "2 of 2 seeds"]
    assert table.best == {(1, column)}


def test_times_have_a_column_a_network() -> None:
    table = time_table(of(cell([0.1, 0.9])), (0.5,))
    (row,) = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    # 1 Gb/s: two round trips of 1 ms, 0.5 s on the node and 0.1 s on the server; 100 and 800 bytes take no time
    assert row["1 Gb/s"] == "0.6 s"
    assert row["reached by"] == "1 of 1 seed"


def test_markdown_has_a_head_a_rule_and_a_line_a_row_and_escapes_what_would_end_a_cell() -> None:
    text = markdown(to_frame(cell([0.1, 0.5], method="a|b")), (0.5,))
    lines = text.splitlines()
    assert "| method | accuracy |" in lines
    assert "| --- | ---: |" in lines
    assert "| a\\|b | **50.0** |" in lines
    assert "| a\\|b | **0.00100 (0.00500)** |" in lines
    assert any(line.startswith("| 50 % | a\\|b | 1 | 1 | 0.00100 |") for line in lines)


def test_the_summary_names_who_ends_best_and_who_gets_there_with_fewest_bytes() -> None:
    found = of(study())
    table = summary_table(found, (0.5,))
    assert table.rows[0][:4] == (
        "classes per client: 1",
        "STC 1/100 (85.5 ± 0.7 %)",
        "50 %",
        "STC 1/100 (5.0 kB; 40.0 times fewer than FedAvg n = 25)",
    )
    assert table.rows[2][1] == "FedAvg n = 25 (86.0 ± 1.4 %)"
    clear = " The lead over the next is larger than the spread over seeds (the larger ± of the two) in 2 of 3 settings."
    assert sentences(found, (0.5,)) == [
        "The highest mean final accuracy: of 3 settings, STC 1/100 in 2; FedAvg n = 25 in 1." + clear,
        "The fewest bytes to the target accuracy, up and down: of 3 settings, STC 1/100 in 3.",
    ]


def test_a_mean_of_the_seeds_that_did_not_diverge_wins_nothing() -> None:
    rows = cell([0.1, 0.9]) + cell([0.1, None], seed=1) + dense([0.1, 0.4]) + dense([0.1, 0.4], seed=1)
    assert summary_table(of(rows), (0.3,)).rows[0][1] == "FedAvg n = 25 (40.0 ± 0.0 %)"


def test_a_target_that_nobody_reaches_is_said() -> None:
    found = of(study())
    assert sentences(found, (0.99,))[1] == "No method reaches a target accuracy with all of its seeds."
    assert summary_table(found, (0.99,)).rows[0][3:] == ("-", "-")


def test_an_unfinished_study_says_how_far_it_is() -> None:
    found = of(study())
    assert warnings(found, 12, 40) == ["The study is not finished: 12 of 40 cells (runs) are in this report."]
    assert warnings(found, 12, 12) == warnings(found) == []


def test_runs_that_diverged_and_a_single_seed_are_said() -> None:
    said = warnings(of(cell([0.1, None]) + dense([0.1, 0.5])))
    assert said[0] == "1 of 2 runs end without an accuracy or a finite loss (they diverged): STC 1/100."
    assert said[1].startswith("There is one seed")


def test_who_shows_the_same_number_ties_and_stands_in_the_order_of_the_study() -> None:
    found = of(dense([0.1, 0.80001], method="B") + dense([0.1, 0.8], method="A") + dense([0.1, 0.7], method="C"))
    (table,) = accuracy_tables(found, "final")
    assert table.best == {(0, 1), (1, 1)}
    assert target_table(found, (0.75,)).best == {(0, 6), (1, 6)}
    assert summary_table(found, (0.75,)).rows[0][1:4] == ("B (80.0 %) = A (80.0 %)", "75 %", "B = A (200 kB)")
    assert sentences(found, (0.75,)) == [
        "The highest mean final accuracy: B = A.",
        "The fewest bytes to the target accuracy, up and down: B = A.",
    ]


def test_ties_count_for_all_who_tie() -> None:
    rows = dense([0.1, 0.8], method="B") + dense([0.1, 0.8], method="A")
    rows += dense([0.1, 0.7], method="B", batch_size=1) + dense([0.1, 0.8], method="A", batch_size=1)
    assert sentences(of(rows), (0.75,)) == [
        "The highest mean final accuracy: of 2 settings (who ties counts), A in 2; B in 1.",
        "The fewest bytes to the target accuracy, up and down: of 2 settings (who ties counts), A in 2; B in 1.",
    ]


def test_a_lead_within_the_spread_is_not_counted_as_clear() -> None:
    rows = cell([0.1, 0.7]) + cell([0.1, 0.9], seed=1) + dense([0.1, 0.79]) + dense([0.1, 0.79], seed=1)
    assert sentences(of(rows), (0.5,))[0].endswith("in 0 of 1 setting.")


def test_a_setting_without_a_target_says_who_ends_best_all_the_same() -> None:
    found = of(cell([0.1, 0.5]) + dense([0.1, 0.102]))
    assert summary_table(found, ()).rows == (("", "STC 1/100 (50.0 %)", "-", "-", "-"),)
    assert sentences(found, ())[1].startswith("No target accuracy follows")


def test_a_target_that_is_asked_for_twice_counts_once() -> None:
    assert len(target_table(of(cell([0.1, 0.9])), (0.8, 0.8)).rows) == 1


def test_holes_are_said_where_no_plan_says_what_there_should_be() -> None:
    rows = cell([0.1, 0.5]) + cell([0.1, 0.5], seed=1) + dense([0.1, 0.5])
    assert warnings(of(rows))[0].startswith("3 of 4 runs are there")
    assert warnings(of(rows), 3, 3) == []
