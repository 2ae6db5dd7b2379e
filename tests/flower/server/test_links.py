"""The check of a strategy and its compressors, and the lines about traffic in the log."""

import re
from typing import Any

import flwr.server.strategy as old_api
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.sync import Ledger
from tests.flower.toy import Messages, app, model

TOTALS = re.compile(
    r"whole run: uplink (\d+) bytes, ratio ([\d.]+); downlink (\d+) bytes, ratio ([\d.]+); both ratio ([\d.]+)"
)


class OldStyle(old_api.FedAvg):
    """A user's subclass of the old API."""


@pytest.mark.parametrize("inner", [old_api.FedAvg(), OldStyle(), old_api.Krum()])
def test_a_strategy_of_the_old_api_is_refused_with_the_name_of_the_new_one(inner: Any) -> None:
    with pytest.raises(ValueError, match=rf"{type(inner).__name__} of .*flwr\.serverapp\.strategy"):
        CompressedStrategy(inner)


@pytest.mark.parametrize("inner", [FedAvg, None, "fedavg"])
def test_what_is_no_strategy_is_refused_as_such(inner: Any) -> None:
    with pytest.raises(ValueError, match="an instance of a flwr Strategy is needed"):
        CompressedStrategy(inner)


def test_a_compressed_strategy_inside_is_refused_at_any_depth() -> None:
    plain = CompressedStrategy(FedAvg())
    for inner in (plain, DifferentialPrivacyServerSideFixedClipping(plain, 1.0, 1.0, 2)):
        with pytest.raises(ValueError, match="CompressedStrategy already"):
            CompressedStrategy(inner)


def totals(log: pytest.LogCaptureFixture) -> list[tuple[float, ...]]:
    return [tuple(map(float, found)) for found in TOTALS.findall(log.text)]


def expected(ledger: Ledger) -> tuple[float, ...]:
    up, down = ledger.dense_uplink_bytes / ledger.uplink_bytes, ledger.dense_downlink_bytes / ledger.downlink_bytes
    return ledger.uplink_bytes, round(up, 1), ledger.downlink_bytes, round(down, 1), round(ledger.ratio, 1)


def test_the_closing_line_has_the_totals_of_the_run(flower_log: pytest.LogCaptureFixture) -> None:
    stc = fedcomp.stc(density=0.05)
    strategy, grid = CompressedStrategy(FedAvg(), uplink=stc, downlink=stc), LocalGrid(app(), 3)
    strategy.start(grid, model(), 4)
    assert totals(flower_log) == [expected(strategy.ledger)]
    assert "uncompressed" not in flower_log.text
    strategy.start(grid, model(), 2)
    assert totals(flower_log)[1:] == [expected(strategy.ledger)], "of the first start too"


def test_the_closing_line_counts_uncompressed_records(flower_log: pytest.LogCaptureFixture) -> None:
    class SendsMore(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message in messages:
                message.content["more"] = ArrayRecord({"m": Array(np.zeros(100))})
            return messages

    CompressedStrategy(SendsMore(fraction_evaluate=0.0)).start(LocalGrid(app(), 3), model(), 2)
    found = re.search(r"; (\d+) bytes of them uncompressed", flower_log.text)
    assert found is not None
    assert int(found[1]) == 2 * 3 * (128 + 800), "an npy file of 100 float64 in each message"
