"""What Flower logs, for tests that read it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def flower_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """The log of Flower, from INFO on."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, "flwr"):
        yield caplog
