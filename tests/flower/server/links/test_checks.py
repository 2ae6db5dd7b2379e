"""The check of a strategy and its compressors."""

from typing import Any

import flwr.server.strategy as old_api
import pytest
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
)

import fedcomp
from fedcomp.flower import CompressedStrategy


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


@pytest.mark.parametrize("inner", [FedMedian, FedTrimmedAvg, Bulyan])
def test_medians_of_sparse_updates_are_warned_of(inner: type[FedAvg], flower_log: pytest.LogCaptureFixture) -> None:
    CompressedStrategy(inner(), uplink=fedcomp.stc(density=0.04))
    assert (
        f"{inner.__name__} compares the updates of each entry, and with the uplink stc(density=0.04)" in flower_log.text
    )
    flower_log.clear()
    for uplink in ("auto()", "eden(bits=2)", "topk(density=0.5)", "dense()"):
        CompressedStrategy(inner(), uplink=fedcomp.parse(uplink))
    CompressedStrategy(FedAvg(), uplink=fedcomp.stc(density=0.04))
    CompressedStrategy(Krum(), uplink=fedcomp.stc(density=0.04))
    assert not flower_log.text
