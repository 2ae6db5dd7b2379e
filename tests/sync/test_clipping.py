"""The share of exact tensors in the norm of an update."""

import math

import numpy as np
import pytest

from fedcomp.errors import CorruptError
from fedcomp.quantized import Sparse
from fedcomp.sync.clipping import check_norm, clip_exact
from fedcomp.sync.replica import Replica, start_replica
from fedcomp.sync.updates import Update
from fedcomp.wire import layout_of


def published() -> Replica:
    arrays = {
        "w": np.zeros(3, np.float32),
        "norm.running_mean": np.ones(2, np.float32),
        "norm.num_batches_tracked": np.array(7),
    }
    return start_replica(layout_of(arrays), arrays)


def exact(mean: list[float], count: int) -> bytes:
    return np.array(mean, "<f4").tobytes() + np.array(count, "<i8").tobytes()


def test_a_change_of_3_leaves_4_of_5() -> None:
    changed = exact([1, 4], 7)
    assert clip_exact(changed, published(), 5) == (changed, 4)


def test_a_counter_stays_as_published_and_takes_no_share() -> None:
    assert clip_exact(exact([1, 4], 8), published(), 5) == (exact([1, 4], 7), 4)


def test_a_change_of_the_whole_norm_leaves_nothing() -> None:
    changed = exact([4, 5], 7)
    assert clip_exact(changed, published(), 5) == (changed, 0)


def test_a_change_beyond_the_norm_is_not_sent() -> None:
    replica = published()
    assert clip_exact(exact([7, 1], 7), replica, 5) == (replica.exact, 5)


def test_an_unchanged_model_leaves_the_whole_norm() -> None:
    replica = published()
    assert clip_exact(replica.exact, replica, 5) == (replica.exact, 5)


def update(change: float, mean: list[float], count: int) -> Update:
    return Update(Sparse(3, np.array([1]), np.array([change], np.float32)), exact(mean, count), 0, 0)


def test_an_update_of_norm_13_is_accepted_under_13_and_refused_under_12() -> None:
    replica = published()
    check_norm(update(12, [1, 6], 7), replica, 13)  # 12 and 5
    with pytest.raises(CorruptError, match="norm 13; the clipping norm is 12"):
        check_norm(update(12, [1, 6], 7), replica, 12)


def test_counters_and_numbers_that_are_not_finite_count_for_the_receiver() -> None:
    replica = published()
    for damaged in (update(0, [1, 1], 20), update(math.nan, [1, 1], 7), update(0, [math.nan, 1], 7)):
        with pytest.raises(CorruptError, match="clipping norm is 12"):
            check_norm(damaged, replica, 12)
