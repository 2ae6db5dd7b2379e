"""A tiny dataset, as arrays and as files."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.data import Card
from tests.data.tiny import Images, idx_bytes, make_card, publish


@pytest.fixture
def tiny_arrays() -> Images:
    """Twelve images (12, 2, 3) and their labels."""
    rng = np.random.default_rng(5)
    return rng.integers(0, 256, (12, 2, 3), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 3


@pytest.fixture
def tiny_idx(tmp_path: Path, tiny_arrays: Images) -> tuple[Card, Path]:
    """A card and the parent of a folder ``tiny`` with ten training and two test images as IDX."""
    x, y = map(idx_bytes, (tiny_arrays[0][:10], tiny_arrays[1][:10]))
    test_x, test_y = map(idx_bytes, (tiny_arrays[0][10:], tiny_arrays[1][10:]))
    folder = tmp_path / "tiny"
    train, test = (
        (publish(folder, "x10", x), publish(folder, "y10", y)),
        (publish(folder, "x2", test_x), publish(folder, "y2", test_y)),
    )
    return make_card(format="idx", hub=None, train=train, test=test), tmp_path
