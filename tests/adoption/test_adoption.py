"""Apps that are no example, written as Flower's quickstarts are, plain and compressed: as good, for far fewer bytes."""

from importlib import import_module

import pytest

from tests.adoption.quickstart import Quickstart

APPS = ("plain_numpy",)
LONG_APPS = ("batch_norm", "best_model", "custom_mods", "language_model", "vae")
MAX_ACCURACY_LOSS = 0.005
"""The accuracy that compression may cost: half a point."""
MAX_LOSS_RATIO = 1.02
"""The loss after a compressed run over that after a plain one."""


@pytest.mark.parametrize("app", [*APPS, *(pytest.param(app, marks=pytest.mark.nightly) for app in LONG_APPS)])
def test_an_app_is_as_good_compressed_as_plain_for_far_fewer_bytes(app: str) -> None:
    quickstart: Quickstart = import_module(f"tests.adoption.{app}").QUICKSTART
    plain, _ = quickstart.run(compress=False)
    compressed, traffic = quickstart.run(compress=True)
    if quickstart.is_loss:
        assert compressed <= MAX_LOSS_RATIO * plain
    else:
        assert plain >= 0.8, "the app learns something"
        assert compressed >= plain - MAX_ACCURACY_LOSS
    assert (traffic.refused, traffic.failed) == (0, 0)
    assert traffic.ratio >= quickstart.min_ratio
