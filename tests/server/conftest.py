"""Settings with the app's own defaults, as a run would have them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from server.settings import Settings

Config = dict[str, object]


@pytest.fixture
def settings(config: Config, tmp_path: Path) -> Callable[..., Settings]:
    """Settings that write under a temporary folder; keywords replace defaults."""

    def make(**changes: object) -> Settings:
        changed = {key.replace("_", "-"): value for key, value in changes.items()}
        return Settings.from_config(config | {"runs-dir": str(tmp_path / "runs")} | changed)

    return make
