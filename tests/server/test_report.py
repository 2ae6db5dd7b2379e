"""The summary, the table and the figure of a run."""

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedcomp.sync.ledger import SERVER_NODE, Ledger, Traffic
from server import report
from server.run_records import RoundRecord, round_record
from server.settings import Settings

MakeSettings = Callable[..., Settings]

TOTALS = Traffic(
    uplink_bytes=10_000,
    downlink_bytes=30_000,
    catch_up_bytes=5_000,
    first_model_bytes=7_000,
    dense_uplink_bytes=1_000_000,
    dense_downlink_bytes=1_400_000,
    encode_seconds=1.25,
    decode_seconds=0.5,
)
RECORDS = [
    RoundRecord(0, 0.1, 2.3),
    RoundRecord(1, 0.5, 1.0, Traffic(uplink_bytes=5_000, downlink_bytes=15_000, dense_uplink_bytes=500_000)),
    RoundRecord(2, None, None, Traffic(uplink_bytes=5_000, downlink_bytes=15_000, dense_uplink_bytes=500_000)),
]


def test_the_summary_has_the_promised_keys_and_no_others(settings: MakeSettings) -> None:
    summary = report.summarize(settings(), RECORDS, TOTALS)
    assert list(summary) == [
        "rounds", "accuracy", "loss", "uplink_bytes", "downlink_bytes", "catch_up_bytes",
        "dense_uplink_bytes", "dense_downlink_bytes", "first_model_bytes", "key_bytes", "jump_bytes", "delta_bytes",
        "replay_bytes", "ratio", "settings",
    ]  # fmt: skip


def test_the_summary_has_the_last_measured_accuracy_the_ratio_and_the_settings(settings: MakeSettings) -> None:
    summary = report.summarize(settings(seed=7), RECORDS, TOTALS)
    assert summary["ratio"] == 2_400_000 / 40_000
    assert (summary["rounds"], summary["accuracy"], summary["loss"]) == (2, 0.5, 1.0)
    again = summary["settings"]
    assert isinstance(again, dict)
    assert Settings.from_config(again) == settings(seed=7)


def test_a_run_that_sent_nothing_has_a_summary_in_json_and_a_figure(settings: MakeSettings) -> None:
    summary = report.summarize(settings(), RECORDS[:1], Traffic())
    assert json.loads(json.dumps(summary, allow_nan=False))["ratio"] is None
    assert report.figure(settings(), RECORDS[:1]).startswith(b"\x89PNG")
    assert [report.finite(value) for value in (float("nan"), float("inf"), 0.5)] == [None, None, 0.5]


def test_the_table_shows_both_directions_catch_up_dense_ratio_and_seconds(settings: MakeSettings) -> None:
    text = report.table(settings(), RECORDS, TOTALS)
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert all(part in rows["up"] for part in ("10.0 kB", "1.0 MB", "100.0x"))
    assert all(part in rows["down"] for part in ("30.0 kB", "1.4 MB", "46.7x"))
    assert "7.0 kB" in rows["first models"]
    assert "5.0 kB" in rows["catch-up"]
    assert all(part in rows["both"] for part in ("40.0 kB", "2.4 MB", "60.0x"))
    assert "accuracy 50.0%, loss 1.000; CPU seconds: encode 1.2, decode 0.5" in text


def test_a_record_has_the_traffic_of_its_round() -> None:
    ledger = Ledger()
    ledger.add(
        3,
        7,
        uplink_bytes=4_000,
        downlink_bytes=21_000,
        catch_up_bytes=5_000,
        first_model_bytes=7_000,
        dense_uplink_bytes=1_000_000,
    )
    ledger.add(3, 8, uplink_bytes=6_000, downlink_bytes=9_000, dense_downlink_bytes=1_400_000, decode_seconds=0.5)
    ledger.add(3, 8, encode_seconds=0.25)
    ledger.add(3, SERVER_NODE, encode_seconds=1.0)
    ledger.add(4, 7, uplink_bytes=50_000)
    record = round_record(3, 1.5, 0.25, ledger, seconds=2.0)
    assert (record.round, record.loss, record.accuracy, record.seconds) == (3, 1.5, 0.25, 2.0)
    assert record.traffic == TOTALS
    assert (record.slowest_uplink_bytes, record.slowest_downlink_bytes, record.server_seconds) == (6_000, 21_000, 1.0)


def test_the_figure_is_a_png_of_readable_size(settings: MakeSettings) -> None:
    png = report.figure(settings(), RECORDS)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(png[offset : offset + 4], "big") for offset in (16, 20))
    assert width >= 1000
    assert height >= 600


def test_the_line_of_dense_bytes_is_labelled_as_the_same_run(settings: MakeSettings) -> None:
    axes, *_ = report.draw(settings(), RECORDS).axes
    measured, dense = axes.get_lines()
    assert np.asarray(measured.get_ydata()).tolist() == np.asarray(dense.get_ydata()).tolist() == [50.0]
    assert (measured.get_label(), dense.get_label()) == (
        "this run, measured: 20.0 kB", "this run, if its messages were dense: 500 kB",
    )  # fmt: skip


@pytest.mark.parametrize("last", [2, 3, 10, 38, 1000])
def test_the_axis_of_rounds_has_whole_numbers(last: int, settings: MakeSettings) -> None:
    records = [RoundRecord(number, 0.5, 1.0, Traffic(1000, 2000)) for number in range(last + 1)]
    _, rounds = report.draw(settings(), records).axes
    ticks = rounds.get_xticks()
    assert len(ticks) >= 2
    assert all(float(tick).is_integer() for tick in ticks)


def test_no_legend_lies_on_the_curves(settings: MakeSettings) -> None:
    records = [
        RoundRecord(
            number, number / 20, 1.0, Traffic(900 * number, 700, dense_uplink_bytes=90_000), downlink="stc(0.01)"
        )
        for number in range(20)
    ]
    drawing = report.draw(settings(), records)
    FigureCanvasAgg(drawing)
    drawing.savefig(io.BytesIO())  # places everything
    upper, lower, _ = drawing.axes
    for axes in (upper, lower):
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
        assert legend.get_window_extent().x1 <= drawing.bbox.x1


def test_the_figure_shows_the_bytes_and_the_density_of_each_round(settings: MakeSettings) -> None:
    densities = [0.02, 0.01, 0.005]
    records = [
        RoundRecord(number, 0.5, 1.0, Traffic(1000 * number, 2000 * number), downlink=f"stc(density={density})")
        for number, density in enumerate(densities)
    ]
    _, rounds, right = report.draw(settings(), records).axes
    up, down = rounds.get_lines()
    assert np.asarray(up.get_ydata()).tolist() == [1.0, 2.0]
    assert np.asarray(down.get_ydata()).tolist() == [2.0, 4.0]
    (density,) = right.get_lines()
    assert np.asarray(density.get_xydata()).tolist() == [[1.0, 0.01], [2.0, 0.005]]
    without = report.draw(settings(), RECORDS)
    assert len(without.axes) == 2, "no axis for a density if there is none"
