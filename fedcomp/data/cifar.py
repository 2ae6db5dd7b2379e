"""The binary version of CIFAR: records of one label byte and the planes of one image.  Krizhevsky, 2009."""

import math
from collections.abc import Mapping

import numpy as np

from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError


def read_split(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images (N, *shape) and labels (N,) of all files, in their order.

    Raises `DataError` for a file that is not a whole number of records.
    """
    record = 1 + math.prod(card.shape)
    for name, data in contents.items():
        if len(data) == 0 or len(data) % record:
            raise DataError(f"{name}: {len(data)} bytes; a whole number of records of {record} is needed")
    records = np.concatenate([np.frombuffer(data, np.uint8).reshape(-1, record) for data in contents.values()])
    return Arrays(records[:, 1:].reshape(-1, *card.shape), records[:, 0])
