"""The share of exact tensors in the norm of an update."""

import numpy as np

from fedcomp.sync.clipping import clip_exact
from fedcomp.sync.replica import Replica, start_replica
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
