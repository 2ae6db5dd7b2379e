"""The lines about traffic in the log: good news reads as good news, in units for people."""

import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Krum

import fedcomp
from fedcomp.core import format_bytes
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.server.rounds.traffic_log import log_totals
from fedcomp.sync import Ledger, Traffic
from tests.flower.toy import Messages, app, model

STC = fedcomp.stc(density=0.05)


def lines(log: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [message for record in log.records if text in (message := record.getMessage())]


def both_links(total: Traffic) -> str:
    up = f"up {format_bytes(total.uplink_bytes)}, {total.dense_uplink_bytes / total.uplink_bytes:.1f} times smaller"
    down = f"down {format_bytes(total.downlink_bytes)}, {total.dense_downlink_bytes / total.downlink_bytes:.1f} times smaller"
    return f"{up}; {down}; together {format_bytes(total.sent_bytes)}, {total.ratio:.1f} times smaller"


def test_the_closing_line_has_the_totals_of_the_run(flower_log: pytest.LogCaptureFixture) -> None:
    strategy, grid = CompressedStrategy(FedAvg(), uplink=STC, downlink=STC), LocalGrid(app(), 3)
    strategy.start(grid, model(), 4)
    closing = "fedcomp: the whole run, compared with plain Flower: "
    assert lines(flower_log, "the whole run") == [closing + both_links(strategy.ledger.total())]
    strategy.start(grid, model(), 2)
    assert lines(flower_log, "the whole run")[1:] == [closing + both_links(strategy.ledger.total())], (
        "of the first start too"
    )


def test_the_closing_line_counts_uncompressed_records(flower_log: pytest.LogCaptureFixture) -> None:
    class SendsMore(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message in messages:
                message.content["more"] = ArrayRecord({"m": Array(np.zeros(100))})
            return messages

    CompressedStrategy(SendsMore(fraction_evaluate=0.0)).start(LocalGrid(app(), 3), model(), 2)
    [line] = lines(flower_log, "the whole run")
    assert line.endswith("; 5.6 kB of it are uncompressed records"), "2 x 3 npy files of 128 + 800 bytes"


def test_the_first_round_says_that_its_first_models_are_the_last_whole_ones(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=STC, downlink=STC)
    strategy.start(LocalGrid(app(), 3), model(), 2)
    [line] = lines(flower_log, "round 1, compared")
    sent = format_bytes(strategy.ledger.of_round(1).downlink_bytes)
    assert line.endswith(f"; down {sent}, which brought 3 nodes their first models; from now on they get differences")
    assert re.search(r"round 1, compared with plain Flower: up \d+ B, [\d.]+ times smaller;", line)


def test_where_nodes_make_the_first_model_nothing_is_said_of_it(flower_log: pytest.LogCaptureFixture) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), shared_start=True)
    strategy.start(LocalGrid(app(start=lambda _: model()), 3), model(), 2)
    [line] = lines(flower_log, "round 1, compared")
    assert "first model" not in line
    assert re.search(r"; down \d+ B, \d+\.\d times smaller$", line)


def test_every_tenth_round_but_the_last_has_a_total(flower_log: pytest.LogCaptureFixture) -> None:
    seen: dict[int, Traffic] = {}
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0),
        uplink=STC,
        downlink=STC,
        on_round=lambda each: seen.update({each.number: each.total}),
    )
    strategy.start(LocalGrid(app(), 3), model(), 30)
    totals = lines(flower_log, " rounds, compared with plain Flower: ")
    assert totals == [f"fedcomp: {n} rounds, compared with plain Flower: {both_links(seen[n])}" for n in (10, 20)]


@pytest.mark.parametrize(
    ("sent", "dense", "text"),
    [
        (100, 104, "as much"),
        (100, 106, "1.1 times smaller"),
        (300, 120, "2.5 times larger"),
        (106, 100, "1.1 times larger"),
    ],
)
def test_a_link_that_gains_nothing_is_not_called_smaller(
    sent: int, dense: int, text: str, flower_log: pytest.LogCaptureFixture
) -> None:
    """A message has a head; beside a model of a few entries, it is most of the bytes."""
    ledger = Ledger()
    ledger.add(1, 7, uplink_bytes=sent, dense_uplink_bytes=dense, downlink_bytes=0, dense_downlink_bytes=0)
    log_totals(ledger)
    [line] = lines(flower_log, "the whole run")
    assert line.endswith(f": up {sent} B, {text}; down 0 B; together {sent} B, {text}")


def test_the_merged_result_is_explained_once(flower_log: pytest.LogCaptureFixture) -> None:
    strategy, grid = CompressedStrategy(FedAvg()), LocalGrid(app(), 3)
    strategy.start(grid, model(), 3)
    strategy.start(grid, model(), 2)
    assert flower_log.text.count("aggregate_train: Received 1 results") == 5
    [line] = lines(flower_log, "merged")
    assert line == "fedcomp: 3 updates are merged into one, here and in later rounds; Flower counts it as 1 result"
    CompressedStrategy(Krum()).start(grid, model(), 1)
    assert len(lines(flower_log, "merged")) == 1, "Krum gets each update"
