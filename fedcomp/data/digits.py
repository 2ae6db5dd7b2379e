"""The digits in scikit-learn, 1,797 images of 8x8: a dataset that needs no network.

Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
"""

from typing import Any, cast

import numpy as np

from fedcomp.data.dataset import Arrays

TEST_SIZE = 360


def read_splits() -> tuple[Arrays, Arrays]:
    """Return train (1437) and test (360) as images float32 (N, 1, 8, 8) in [0, 1] and labels (N,).

    Both splits have the same class distribution, and are always the same.
    """
    from sklearn import datasets as sklearn_datasets
    from sklearn import model_selection

    digits = cast(Any, sklearn_datasets.load_digits())
    images = (np.asarray(digits.data) / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # stored as 0 to 16
    labels = np.asarray(digits.target).astype(np.int64)
    order = np.arange(len(labels))
    split = cast(Any, model_selection.train_test_split)
    parts = split(order, test_size=TEST_SIZE, stratify=labels, random_state=0)
    train, test = (np.sort(np.asarray(part, np.int64)) for part in parts)
    return Arrays(images[train], labels[train]), Arrays(images[test], labels[test])
