"""The digits in scikit-learn, 1,797 images of 8x8: a dataset that needs no network.

Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
"""

import numpy as np

from fedcomp.data.dataset import Arrays

TEST_SIZE = 360


def read_splits() -> tuple[Arrays, Arrays]:
    """Return train (1437) and test (360) as images float32 (N, 1, 8, 8) in [0, 1] and labels (N,).

    Both splits have the same class distribution, and are always the same.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, target = load_digits(return_X_y=True)
    images = (np.asarray(pixels) / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # stored as 0 to 16
    labels = np.asarray(target).astype(np.int64)
    order = np.arange(len(labels))
    train, test = train_test_split(order, test_size=TEST_SIZE, stratify=labels, random_state=0)
    train, test = np.sort(train), np.sort(test)
    return Arrays(images[train], labels[train]), Arrays(images[test], labels[test])
