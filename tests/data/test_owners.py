"""Owners: names become numbers, and whole owners are held out."""

import numpy as np
import pytest

from fedcomp.data.dataset import Arrays, DataError
from fedcomp.data.owners import hold_out, numbered


def test_names_get_numbers_in_sorted_order_and_samples_without_a_name_go_to_owners_in_turn() -> None:
    names = np.array(["cy", "", "al", "bo", "", "al", "", ""])
    assert numbered(names, "who").tolist() == [2, 0, 0, 1, 1, 0, 2, 0]


def test_whole_numbers_stay_as_they_are() -> None:
    found = numbered(np.array([2002, 7, 7], np.int32), "who")
    assert found.tolist() == [2002, 7, 7]
    assert found.dtype == np.int64


def test_all_samples_of_every_third_owner_are_held_out() -> None:
    owners = np.array([50, 10, 30, 20, 40, 30, 60])
    arrays = Arrays(np.arange(7), np.arange(7) % 2, {"who": owners})
    train, test = hold_out(arrays, "who", every=3)
    assert test.groups["who"].tolist() == [30, 30, 60]
    assert test.x.tolist() == [2, 5, 6]
    assert test.y.tolist() == [0, 1, 0]
    assert train.x.tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (np.array(["", ""]), "who: 2 samples"),
        (np.array([0.5, 1.0]), r"who of shape \(2,\) and dtype float64"),
        (np.array([["a"]]), r"who of shape \(1, 1\)"),
    ],
)
def test_anything_but_names_is_refused(names: np.ndarray, named: str) -> None:
    with pytest.raises(DataError, match=named):
        numbered(names, "who")
