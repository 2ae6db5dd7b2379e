"""The embedded digits."""

import numpy as np

from fedcomp.data.digits import read_splits


def test_there_are_1437_and_360_images_with_values_in_0_to_1() -> None:
    (train_x, train_y, _), (test_x, test_y, _) = read_splits()
    assert (train_x.shape, test_x.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert train_x.dtype == np.float32
    assert train_y.dtype == np.int64
    assert (train_x.min(), train_x.max()) == (0, 1)
    assert len(train_y) == 1437
    assert set(test_y.tolist()) == set(range(10))


def test_both_splits_have_the_same_class_distribution() -> None:
    (_, train, _), (_, test, _) = read_splits()
    both = np.bincount(train) + np.bincount(test)
    assert np.abs(np.bincount(test) - both * 360 / 1797).max() < 1


def test_the_split_is_always_the_same() -> None:
    assert np.array_equal(read_splits()[1][0], read_splits()[1][0])
