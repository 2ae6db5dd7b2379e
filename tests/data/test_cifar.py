"""The binary version of CIFAR: the layout by hand, and damage."""

from collections.abc import Callable

import numpy as np
import pytest

from fedcomp.data.card import Card
from fedcomp.data.cifar import read_split
from fedcomp.data.dataset import DataError


@pytest.fixture
def card(make_card: Callable[..., Card]) -> Card:
    """Two channels of 1x2."""
    return make_card(shape=(2, 1, 2), mean=(0, 0), std=(1, 1))


def test_a_record_is_a_label_and_the_planes_in_turn(card: Card) -> None:
    x, y, _ = read_split(card, {"a": bytes([2, 10, 11, 20, 21]), "b": bytes([0, 1, 2, 3, 4, 1, 5, 6, 7, 8])})
    assert y.tolist() == [2, 0, 1]
    assert x.tolist() == [[[[10, 11]], [[20, 21]]], [[[1, 2]], [[3, 4]]], [[[5, 6]], [[7, 8]]]]


def test_records_keep_their_order_however_files_divide_them(card: Card) -> None:
    records = np.random.default_rng(3).integers(0, 256, (9, 5), dtype=np.uint8)
    x, y, _ = read_split(card, {str(at): records[at : at + 3].tobytes() for at in (0, 3, 6)})
    assert np.array_equal(np.concatenate([y[:, np.newaxis], x.reshape(9, 4)], axis=1), records)


@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_a_file_with_an_incomplete_record_is_named(card: Card, length: int) -> None:
    with pytest.raises(DataError, match=f"^b: {length} bytes.* 5 "):
        read_split(card, {"a": bytes(5), "b": bytes(length)})
