"""Keywords that `clipping` and `checkpoint` have replaced: they work for one more version, and a warning names the new ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import Checkpoint, Clipping, CompressedStrategy, LocalGrid
from tests.flower.toy import app, floats, model


def _trained(**settings: Any) -> CompressedStrategy:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), **settings)
    strategy.start(LocalGrid(app(), 3), model(), 3)
    return strategy


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"clip_norm": 0.5}, {"clipping": Clipping(norm=0.5)}),
        ({"clip_median": 0.5}, {"clipping": Clipping(median=0.5)}),
        ({"clip_norm": 0.5, "clip_median": 2}, {"clipping": Clipping(0.5, 2)}),
    ],
)
def test_old_bounds_train_as_the_new_ones(old: dict[str, float], new: dict[str, Clipping]) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"CompressedStrategy: .* are deprecated; use clipping=Clipping\("
    ) as warned:
        strategy = _trained(**old)
    assert warned[0].filename == __file__, "the warning names the caller's line"
    clipped, plain = floats(_trained(**new).arrays), floats(_trained().arrays)
    np.testing.assert_array_equal(floats(strategy.arrays), clipped)
    assert (clipped != plain).any()


def test_a_path_is_the_checkpoint_of_every_so_many_versions(tmp_path: Path) -> None:
    texts = (r"use checkpoint=Checkpoint\('.*state', every=1\)", r"use checkpoint=Checkpoint\('.*state', every=2\)")
    for old, text, last in (({}, texts[0], 3), ({"checkpoint_every": 2}, texts[1], 2)):
        with pytest.warns(DeprecationWarning, match=text):
            strategy = _trained(checkpoint=tmp_path / "state", **old)
        resumed = CompressedStrategy(FedAvg(), checkpoint=Checkpoint(tmp_path / "state"))
        resumed.load(tmp_path / "state")
        assert (resumed.round, resumed.version, strategy.round) == (last, last, 3)


def test_a_number_of_versions_without_a_checkpoint_means_nothing_as_before() -> None:
    with pytest.warns(DeprecationWarning, match="checkpoint_every is deprecated"):
        CompressedStrategy(FedAvg(), checkpoint_every=5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clipping": 3.0}, "clipping is 3.0; a Clipping is needed"),
        ({"checkpoint": 3}, "checkpoint is 3; a Checkpoint is needed"),
        ({"clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
    ],
)
def test_values_of_other_types_or_out_of_range_are_refused_in_one_sentence(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CompressedStrategy(FedAvg(), **settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clip_norms": 1.0}, "unexpected keyword argument 'clip_norms'"),
        ({"clip_norm": 1.0, "clipping": Clipping(1)}, "got clipping, and clip_norm or clip_median"),
        ({"checkpoint_every": 2, "checkpoint": Checkpoint("state")}, "a Checkpoint, and checkpoint_every"),
    ],
)
def test_what_fits_neither_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        CompressedStrategy(FedAvg(), **settings)
