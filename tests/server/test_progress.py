"""The line of a round: bytes, durations and the time left."""

from dataclasses import replace

import pytest

from fedcomp.core import format_bytes
from fedcomp.sync import Traffic
from server.progress import Progress, format_seconds
from server.run_records import RoundRecord


def record(number: int, seconds: float = 1.0, accuracy: float | None = 0.875) -> RoundRecord:
    traffic = Traffic(uplink_bytes=12_345, downlink_bytes=67_890_000)
    return RoundRecord(number, accuracy, 0.5, traffic, seconds=seconds)


def test_a_line_shows_round_accuracy_bytes_each_way_and_time_left() -> None:
    progress = Progress(120)
    progress.line(record(1))
    assert progress.line(record(2, seconds=2.0)) == (
        "round   2/120  accuracy   87.5%  up  12.3 kB  down  67.9 MB  3 min 56 s left"
    )


def test_the_start_has_no_bytes_and_the_first_round_predicts_nothing() -> None:
    progress = Progress(9)
    assert progress.line(record(0)) == "round 0/9  accuracy   87.5%"
    assert "left" not in progress.line(record(1, seconds=100.0))
    assert progress.line(record(2, seconds=3.0)).endswith("  21 s left")


def test_one_slow_round_does_not_change_the_prediction() -> None:
    progress = Progress(100)
    lines = [progress.line(record(number, seconds=50.0 if number == 25 else 1.0)) for number in range(1, 30)]
    assert lines[-1].endswith("  1 min 11 s left")


def test_a_round_without_evaluation_shows_no_accuracy() -> None:
    assert "accuracy       -  up" in Progress(5).line(record(1, accuracy=None))


def test_the_accuracy_on_the_nodes_is_shown_if_they_evaluated() -> None:
    line = Progress(5).line(replace(record(1), eval_accuracy=0.75))
    assert line == "round 1/5  accuracy   87.5%  nodes   75.0%  up  12.3 kB  down  67.9 MB"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"), (999_499, "999 kB")]
    + [(999_500, "1.0 MB"), (2_500_000_000, "2.5 GB"), (4e15, "4000.0 TB")],
)
def test_bytes_have_a_decimal_unit_and_no_more_digits_than_matter(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (72, "1 min 12 s"),
        (3600, "1 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
