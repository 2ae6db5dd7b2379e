"""The tables of methods by settings, reckoned by hand."""

from experiments.curves import Study, read
from experiments.grids import accuracy_tables, byte_tables, catch_up_tables, grids, ratio_tables
from experiments.results import Row, to_frame
from tests.experiments.rows import cell, dense, study


def of(rows: list[Row]) -> Study:
    """Return the study of these rows."""
    return read(to_frame(rows))


def test_accuracies_are_means_with_their_deviation_and_the_best_of_a_column_is_marked() -> None:
    (table,) = accuracy_tables(of(study()), "final")
    assert table.head == ("method", "1", "2", "10")
    assert table.rows[0] == ("STC 1/100", "85.5 ± 0.7", "85.5 ± 0.7", "85.5 ± 0.7")
    assert table.rows[1] == ("FedAvg n = 25", "59.0 ± 1.4", "62.0 ± 1.4", "86.0 ± 1.4")
    assert table.best == {(0, 1), (0, 2), (1, 3)}


def test_a_seed_without_an_accuracy_is_said_and_a_cell_that_was_not_run_is_empty() -> None:
    rows = cell([0.1, 0.5]) + cell([0.1, None], seed=1) + dense([0.1, 0.4], batch_size=1)
    (table,) = accuracy_tables(of(rows), "final")
    assert table.rows == (("STC 1/100", "", "50.0 (1 of 2 seeds)"), ("FedAvg n = 25", "40.0", ""))
    assert table.best == {(1, 1)}


def test_bytes_to_a_target_that_is_asked_for_stand_side_by_side() -> None:
    rows = cell([0.1, 0.6], up=1_000_000) + cell([0.1, 0.2, 0.6], up=1_000_000, seed=1) + dense([0.1, 0.6])
    rows += cell([0.1, 0.6], batch_size=1) + cell([0.1, 0.5], batch_size=1, seed=1)
    rows += dense([0.1, 0.7], batch_size=1) + dense([0.1, 0.5], batch_size=2)
    (table,) = byte_tables(of(rows), (0.6, 0.6))
    assert table.head == ("method", "1", "2", "20")
    assert table.rows == (
        ("STC 1/100", "0.00100 (0.00500), 1 of 2 seeds", "", "1.50 (1.51)"),
        ("FedAvg n = 25", "0.100 (0.200)", "never", "0.100 (0.200)"),
    )
    assert table.best == {(1, 1), (1, 3)}
    assert (
        "until 60 % is first reached at an evaluation, by batch size: up, and in brackets up and down" in table.caption
    )
    assert byte_tables(of(rows), ()) == []
    (alone,) = byte_tables(of(cell([0.1, 0.9])), (0.5,))
    assert alone.head == ("method", "up (up and down)")


def test_what_whole_runs_sent_stands_beside_plain_flower_by_scenario() -> None:
    rows = cell([0.1, 0.5], up=1000, down=4000) + cell([0.1, 0.5], up=3000, down=12_000, seed=1)
    found = of(rows + cell([0.1, 0.5], batch_size=1, up=1000, down=9000) + dense([0.1]))
    (ratios,), (catching,) = ratio_tables(found), catch_up_tables(found)
    assert ratios.head == catching.head == ("method", "1", "20")
    assert ratios.rows == (("STC 1/100", "100 (20)", "50 (20)"), ("FedAvg n = 25", "", "-"))  # 100 kB each way, a round
    assert catching.rows == (("STC 1/100", "50.0 %", "50.0 %"), ("FedAvg n = 25", "", "-"))


def test_of_two_axes_the_longer_one_has_the_columns_and_the_other_a_table_each() -> None:
    rows = [row for size in (1, 5, 20) for row in cell([0.1, 0.5], batch_size=size, partition="stc(classes=10)")]
    rows += cell([0.1, 0.9], batch_size=20) + dense([0.1, 0.8], batch_size=1) + dense([0.1, 0.95], batch_size=20)
    two, ten = grids(of(rows))
    assert two.said == ", by batch size (classes per client: 2)"
    assert (two.heads, ten.heads) == (("1", "20"), ("1", "5", "20"))
    first, second = accuracy_tables(of(rows), "final")
    assert ten.said in second.caption
    assert first.rows == (("STC 1/100", "", "90.0"), ("FedAvg n = 25", "80.0", "95.0"))
    assert first.best == {(1, 1), (1, 2)}
    assert second.rows == (("STC 1/100", "50.0", "50.0", "50.0"), ("FedAvg n = 25", "", "", ""))
    assert len(byte_tables(of(rows), (0.4, 0.6))) == 4
